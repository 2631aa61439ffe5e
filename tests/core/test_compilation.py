"""The persistent compilation cache, which is global to JAX, tested in separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys, time
import jax
import bayescal as bc
assert jax.config.jax_compilation_cache_dir is None
folder = bc.cache_compilations(*sys.argv[1:])
assert jax.config.jax_compilation_cache_dir == str(folder)
"""
COMPILE = """
def long(x):
    # Hundreds of operations: what compiles at once is not kept.
    for i in range(150):
        x = jax.numpy.sin(x @ x + i) * jax.numpy.cos(x)
    return x


start = time.perf_counter()
jax.jit(long)(jax.numpy.ones((5, 5)))
assert time.perf_counter() - start > 0.1
"""
REPORT = "print(folder, len(os.listdir(folder)) if folder.exists() else 0)"


def run(program: str, *arguments: str, **environment: str) -> tuple[Path, int]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    done = subprocess.run(
        [sys.executable, "-c", program + REPORT, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**kept, **environment},
    )
    folder, count = done.stdout.split()
    return Path(folder), int(count)


def test_what_is_compiled_is_kept(tmp_path: Path) -> None:
    folder, count = run(PROGRAM + COMPILE, str(tmp_path / "own"))
    assert folder == tmp_path / "own"
    assert count > 0


def test_the_users_cache_folder_is_the_default(tmp_path: Path) -> None:
    folder, _ = run(PROGRAM, XDG_CACHE_HOME=str(tmp_path))
    assert folder == tmp_path / "bayescal" / "jax"
