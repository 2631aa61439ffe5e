import os, sys, time
import jax, jax.numpy as jnp, numpy as np
import bayescal as bc
from bayescal._core import chunks
import bayescal._core.chunks

if os.environ.get("BLOCK"):
    chunks._ELEMENTS_ACCELERATOR = 1 << int(os.environ["BLOCK"])
from benchmarks import device as D

want = sys.argv[1].split(",")
for j in D.jobs(False, False):
    for w in want:
        if j.name == w:
            first, run = D.timed(lambda: j.run(np.float32))
            print(
                "VARIANT",
                os.environ.get("BLOCK"),
                os.environ.get("XLA_FLAGS"),
                j.name,
                f"first {first:.2f} run {run * 1e3:.2f} ms",
                flush=True,
            )
    if j.name == "kernel" or j.name == want[-1]:
        break
