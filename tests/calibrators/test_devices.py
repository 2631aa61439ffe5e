"""Functions of calibrators over several devices: rows are split, and results stay equal."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import jax, numpy as np, bayescal as bc
from jax.sharding import Mesh, NamedSharding, PartitionSpec
jax.config.update("jax_enable_x64", True)
assert len(jax.devices()) == 8
rng = np.random.default_rng(0)
z = 3 * rng.normal(size=(4096, 5))
y = np.argmax(z / 2 + rng.gumbel(size=z.shape), axis=1)
mesh = Mesh(np.array(jax.devices()), ("rows",))
rows = NamedSharding(mesh, PartitionSpec("rows"))
for calibrator in (
    bc.Temperature(inputs="logits"),
    bc.Dirichlet(inputs="logits"),
    bc.OneVsRest(bc.Isotonic(), inputs="logits"),
    bc.Auto(inputs="logits"),
    bc.Vector(inputs="logits", inference="laplace", num_samples=100, random_state=0),
    bc.Kernel(inputs="logits", bandwidth=0.1),
):
    f = calibrator.fit(z[:300], y[:300]).as_function()
    expected = calibrator.predict_proba(z)
    one = lambda z: f(z)
    split = jax.shard_map(one, mesh=mesh, in_specs=rows.spec, out_specs=rows.spec, check_vma=False)
    for each in (jax.jit(split), jax.jit(one)):
        found = each(jax.device_put(z, rows))
        np.testing.assert_allclose(np.asarray(found), expected, atol=1e-12)
    found = jax.jit(split)(jax.device_put(z, rows))
    assert found.sharding.is_equivalent_to(rows, 2), found.sharding
    assert {part.data.shape for part in found.addressable_shards} == {(512, 5)}
    program = jax.jit(split).lower(jax.ShapeDtypeStruct(z.shape, z.dtype, sharding=rows)).compile()
    text = program.as_text()
    moved = [name for name in ("all-gather", "all-to-all", "all-reduce") if name + "(" in text]
    assert not moved, (type(calibrator).__name__, moved)
print("equal")
"""


@pytest.mark.slow
def test_eight_devices_split_the_rows() -> None:
    """Check that each device holds only its own rows and that devices do not communicate."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    environment = {**os.environ, "XLA_FLAGS": flags}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0 and done.stdout.strip() == "equal", done.stderr[-3000:]
