"""Time of fitted calibrators as functions, beside the same maps written by hand.

    python benchmarks/bench_functions.py [--json FILE] [--task NAME ...]

Float32 on all cores; in JAX one compiled program, in PyTorch operation by operation. By hand is
what one would write who knows the fitted parameters. The last column is the mean probability of
the first class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from side_by_side import Entry, main

Array = np.ndarray
Map = Callable[[Any], Any]


def make(size: tuple[int, int]) -> tuple[Array, Array]:
    """Return logits (n, k), or log odds (n,) for k = 1, and labels of the first."""
    n, k = size
    rng = np.random.default_rng(0)
    z = 3 * rng.standard_normal((n, k), np.float32)
    return z if k > 1 else z[:, 0], rng.integers(0, max(k, 2), 5000)


def by_jax(name: str, state: dict[str, Array]) -> Map:
    import jax
    import jax.numpy as jnp

    s = {key: jnp.asarray(value, jnp.float32) for key, value in state.items()}
    softmax, sigmoid, soft = jax.nn.softmax, jax.nn.sigmoid, jax.nn.softplus
    maps: dict[str, Map] = {
        "Temperature": lambda z: softmax(z / s["temperature"]),
        "Vector": lambda z: softmax(z * s["coef"] + s["intercept"]),
        "Dirichlet": lambda z: softmax(jax.nn.log_softmax(z) @ s["coef"].T + s["intercept"]),
        "Beta": lambda z: sigmoid(s["c"] - s["a"] * soft(-z) + s["b"] * soft(z)),
    }
    one = maps[name]
    return one if name != "Beta" else lambda z: jnp.stack([1 - one(z), one(z)], axis=1)


def by_torch(name: str, state: dict[str, Array]) -> Map:
    import torch
    from torch.nn.functional import log_softmax, softplus

    s = {key: torch.as_tensor(value, dtype=torch.float32) for key, value in state.items()}
    maps: dict[str, Map] = {
        "Temperature": lambda z: torch.softmax(z / s["temperature"], 1),
        "Vector": lambda z: torch.softmax(z * s["coef"] + s["intercept"], 1),
        "Dirichlet": lambda z: torch.softmax(log_softmax(z, 1) @ s["coef"].T + s["intercept"], 1),
        "Beta": lambda z: torch.sigmoid(s["c"] - s["a"] * softplus(-z) + s["b"] * softplus(z)),
    }
    one = maps[name]
    if name != "Beta":
        return one

    def both(z: Any) -> Any:
        p = one(z)
        return torch.stack([1 - p, p], dim=1)

    return both


def setup(name: str, library: str, ours: bool) -> Any:
    """Return the set-up of one map in one library."""

    def prepare(z: Array, y: Array) -> Any:
        import bayescal as bc

        calibrator = getattr(bc, name)(inputs="logits").fit(z[: len(y)], y)
        if library == "JAX":
            import jax

            at = jax.numpy.asarray(z)
            f = jax.jit(calibrator.as_function() if ours else by_jax(name, calibrator.state_))
            return lambda: f(at).block_until_ready(), lambda p: float(p[:, 0].mean())
        import torch

        tensor = torch.as_tensor(z)
        f = calibrator.as_function() if ours else by_torch(name, calibrator.state_)
        return lambda: f(tensor), lambda p: float(p[:, 0].mean())

    return prepare


def entries() -> list[Entry]:
    sizes = [("Beta", (1_000_000, 1)), *((n, (100_000, 100)) for n in ("Temperature", "Vector"))]
    sizes += [("Temperature", (1_000_000, 10)), ("Dirichlet", (1_000_000, 10))]
    found = []
    for name, (n, k) in sizes:
        for library in ("JAX", "PyTorch"):
            task = f"{name} {n:,} x {k}, {library}"
            module = "torch" if library == "PyTorch" else "jax"
            found.append(Entry(task, "bayescal", "", (n, k), module, setup(name, library, True)))
            found.append(
                Entry(task, library, "by hand", (n, k), module, setup(name, library, False))
            )
    return found


if __name__ == "__main__":
    main(__file__, "Functions", entries(), make, ("torch",), "mean")
