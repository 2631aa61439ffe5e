"""Time fitted calibrators as functions, and compare them with the same maps written by hand.

    python benchmarks/bench_functions.py [--json FILE] [--task NAME ...]

Functions run in float32 on all cores: as one compiled program in JAX, and operation by operation in
PyTorch. "By hand" is the code that a user with the fitted parameters would write. The last column
is the mean probability of the first class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from side_by_side import Entry, main

Array = np.ndarray
Map = Callable[[Any], Any]


def make(size: tuple[int, int]) -> tuple[Array, Array]:
    """Draw logits (n, k), or log odds (n,) for k = 1, and labels of the first 5,000 rows."""
    n, k = size
    rng = np.random.default_rng(0)
    z = 3 * rng.standard_normal((n, k), np.float32)
    return z if k > 1 else z[:, 0], rng.integers(0, max(k, 2), 5000)


def jax_by_hand(name: str, state: dict[str, Array]) -> Map:
    """Write the map of a fitted calibrator in JAX."""
    import jax
    import jax.numpy as jnp

    s = {key: jnp.asarray(value, jnp.float32) for key, value in state.items()}
    softmax, sigmoid, softplus = jax.nn.softmax, jax.nn.sigmoid, jax.nn.softplus
    maps: dict[str, Map] = {
        "Temperature": lambda z: softmax(z / s["temperature"]),
        "Vector": lambda z: softmax(z * s["coef"] + s["intercept"]),
        "Dirichlet": lambda z: softmax(jax.nn.log_softmax(z) @ s["coef"].T + s["intercept"]),
        "Beta": lambda z: sigmoid(s["c"] - s["a"] * softplus(-z) + s["b"] * softplus(z)),
    }
    function = maps[name]
    return (
        function if name != "Beta" else lambda z: jnp.stack([1 - function(z), function(z)], axis=1)
    )


def torch_by_hand(name: str, state: dict[str, Array]) -> Map:
    """Write the map of a fitted calibrator in PyTorch."""
    import torch
    from torch.nn.functional import log_softmax, softplus

    s = {key: torch.as_tensor(value, dtype=torch.float32) for key, value in state.items()}
    maps: dict[str, Map] = {
        "Temperature": lambda z: torch.softmax(z / s["temperature"], 1),
        "Vector": lambda z: torch.softmax(z * s["coef"] + s["intercept"], 1),
        "Dirichlet": lambda z: torch.softmax(log_softmax(z, 1) @ s["coef"].T + s["intercept"], 1),
        "Beta": lambda z: torch.sigmoid(s["c"] - s["a"] * softplus(-z) + s["b"] * softplus(z)),
    }
    function = maps[name]
    if name != "Beta":
        return function

    def both_classes(z: Any) -> Any:
        p = function(z)
        return torch.stack([1 - p, p], dim=1)

    return both_classes


def setup(name: str, library: str, from_bayescal: bool) -> Any:
    """Create the setup of one map in one library."""

    def prepare(z: Array, y: Array) -> Any:
        import bayescal as bc

        calibrator = getattr(bc, name)(inputs="logits").fit(z[: len(y)], y)
        if library == "JAX":
            import jax

            device_z = jax.numpy.asarray(z)
            function = jax.jit(
                calibrator.as_function() if from_bayescal else jax_by_hand(name, calibrator.state_)
            )
            return lambda: function(device_z).block_until_ready(), lambda p: float(p[:, 0].mean())
        import torch

        tensor = torch.as_tensor(z)
        function = (
            calibrator.as_function() if from_bayescal else torch_by_hand(name, calibrator.state_)
        )
        return lambda: function(tensor), lambda p: float(p[:, 0].mean())

    return prepare


def entries() -> list[Entry]:
    """List all entries; the first one of each task is bayescal."""
    sizes = [("Beta", (1_000_000, 1)), *((n, (100_000, 100)) for n in ("Temperature", "Vector"))]
    sizes += [("Temperature", (1_000_000, 10)), ("Dirichlet", (1_000_000, 10))]
    result = []
    for name, (n, k) in sizes:
        for library in ("JAX", "PyTorch"):
            task = f"{name} {n:,} x {k}, {library}"
            module = "torch" if library == "PyTorch" else "jax"
            result.append(Entry(task, "bayescal", "", (n, k), module, setup(name, library, True)))
            result.append(
                Entry(task, library, "by hand", (n, k), module, setup(name, library, False))
            )
    return result


if __name__ == "__main__":
    main(__file__, "Functions", entries(), make, ("torch",), "mean")
