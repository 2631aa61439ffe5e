import sys, cProfile, pstats, numpy as np, jax, os

out = os.environ["OUT"]
from benchmarks import device as D

sys.argv = ["benchmarks/device.py", "--json", out + "/device_cuda.json"]
try:
    D.main()
finally:
    for j in D.jobs(False, False):
        if j.name in ("kernel", "ece 1000000 x 10", "posterior_predict 1000"):
            j.run(np.float32)
            j.run(np.float32)
            p = cProfile.Profile()
            p.enable()
            jax.block_until_ready(j.run(np.float32))
            p.disable()
            with open(out + "/prof_" + j.name.split()[0], "w") as f:
                pstats.Stats(p, stream=f).sort_stats("tottime").print_stats(14)
        if j.name.startswith("ece"):
            break
