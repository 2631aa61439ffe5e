import glob, sys, time, tempfile, collections, os
import jax, jax.numpy as jnp, numpy as np
import bayescal as bc
from bayescal._core import chunks
from benchmarks import device as D


def profile(name, run, top=9):
    t = time.perf_counter()
    jax.block_until_ready(run(np.float32))
    first = time.perf_counter() - t
    jax.block_until_ready(run(np.float32))
    t = time.perf_counter()
    jax.block_until_ready(run(np.float32))
    wall = time.perf_counter() - t
    d = tempfile.mkdtemp()
    with jax.profiler.trace(d):
        jax.block_until_ready(run(np.float32))
    f = glob.glob(d + "/**/*.xplane.pb", recursive=True)[0]
    P = jax.profiler.ProfileData.from_file(f)
    tot = collections.Counter()
    n = collections.Counter()
    for pl in P.planes:
        if "GPU" not in pl.name:
            continue
        for line in pl.lines:
            if "Stream" not in line.name:
                continue
            for e in line.events:
                tot[e.name] += e.duration_ns
                n[e.name] += 1
    print(
        f"## {name}: first {first:.2f} s, wall {wall * 1e3:.2f} ms, device busy {sum(tot.values()) / 1e6:.2f} ms, {sum(n.values())} events",
        flush=True,
    )
    for k, v in tot.most_common(top):
        print(f"   {v / 1e6:9.3f} ms  x{n[k]:<6d} {k[:70]}")
    sys.stdout.flush()


want = sys.argv[1].split(",")
only = sys.argv[2:]
for j in D.jobs(False, False):
    for w in want:
        if j.name.startswith(w):
            profile(j.name + " " + j.size, j.run)
