"""The best constant smoothing factor by size and separation, as in figure 15 of the thesis.

Classes are N(-m, 1) and N(m, 1). Logistic regressions are fitted to labels moved by a constant, and
judged by their expected log loss given the known densities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.keys import as_key
from bayescal._core.precision import float64
from bayescal.data.checks import check_count
from bayescal.datasets import synthetic
from bayescal.models import GaussianPrior
from bayescal.regression.binary.fit import fit_many
from bayescal.regression.binary.objective import Regression
from bayescal.smoothing.instance import batched_instance_targets
from benchmarks.studies._factors_picture import draw_figure
from benchmarks.studies._known_truth import loss_of_lines
from benchmarks.studies.store import Progress, Results, counted

__all__ = ["FACTORS", "SEPARATIONS", "SIZES", "run"]

#: Half the distance of the means, in standard deviations.
SEPARATIONS = 0.5, 1.0, 1.5, 2.0, 2.5
SIZES = 20, 50, 100, 200, 500, 1000
FACTORS = np.geomspace(1e-5, 0.3, 40)
_COLUMNS = (
    *("best", "least", "greatest", "platt", "instance"),
    *("loss_best", "loss_platt", "loss_instance", "floor", "error_platt", "error_instance"),
)


def run(
    out: str | Path,
    *,
    datasets: int = 200,
    sizes: Sequence[int] = SIZES,
    separations: Sequence[float] = SEPARATIONS,
    seed: int = 0,
    about: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    r"""Find the constant factor with the least expected log loss, for each size and separation.

    Parameters
    ----------
    out : path
        Folder for ``figure_15.csv``, ``figure_15.json`` and ``figure_15.svg``; made if missing.
    datasets : int
        For each size and separation.
    sizes : sequence of int
        Of training sets, balanced.
    separations : sequence of float
        Class means are -m and m, in standard deviations.
    seed : int
    about : mapping of str to str, optional
        Versions and the like; written to the summary.
    progress : callable, optional
        Called with a size and separation, the number of those done and that of all.

    Returns
    -------
    dict
        The content of ``figure_15.json``: ``factors``, the grid, and ``rows``, each with size,
        separation, the ``best`` factor, the ``least`` and ``greatest`` that lose at most one
        (paired) standard error against it, the factor of ``platt``, the mean factor of
        ``instance``; the mean losses of these three; ``floor``, the loss of the true parameters;
        and standard errors of what Platt's and instance-based factors lose against the best.

    Raises
    ------
    ValueError
        For numbers out of range.
    OSError
        If results cannot be written.

    Notes
    -----
    Factors are 40 logarithmically spaced values from 1e-5 to 0.3; labels become the factor and one
    minus it. The best factor of the grid is chosen by the mean over all data sets: it knows the
    truth, and so is a bound for methods that have to find it. All factors and data sets of a size
    are fitted in one compiled program.

    References
    ----------
    M. Maher (2020), Instance-based label smoothing, section 5.1, figure 15.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = run(folder, datasets=20, sizes=[20], separations=[1.0])
    >>> row = found["rows"][0]
    >>> row["floor"] < row["loss_best"] <= row["loss_platt"]
    True
    """
    datasets = check_count(datasets, "datasets")
    if datasets < 2:
        raise ValueError(f"datasets must be at least 2, got {datasets}")
    if any(check_count(size, "sizes") < 4 or size % 2 for size in sizes):
        raise ValueError(f"sizes must be even numbers of at least 4, got {list(sizes)}")
    if not separations or min(separations) <= 0:
        raise ValueError(f"separations must be positive, got {list(separations)}")
    kept = Results("synthetic", out, about)
    cells = [(n, place, m) for n in sizes for place, m in enumerate(separations)]
    rows = []
    for size, place, separation in counted(
        cells, lambda cell: f"n = {cell[0]}, m = {cell[2]:g}", progress
    ):
        key = jax.random.fold_in(jax.random.fold_in(as_key(seed), size), place)
        found = _judge(size, separation, datasets, key)
        rows.append({"n_train": size, "separation": separation, **found})
    summary = {
        "datasets": datasets,
        "seed": seed,
        "factors": FACTORS.tolist(),
        "rows": rows,
    }
    head = "n_train", "separation", *_COLUMNS
    kept.table("figure_15", head, [[row[name] for name in head] for row in rows])
    draw_figure(kept.folder / "figure_15.svg", rows)
    return kept.summary("figure_15", summary)


def _judge(size: int, separation: float, datasets: int, key: jax.Array) -> dict[str, float]:
    prior = GaussianPrior(mu0=-separation, mu1=separation, sigma=1.0)
    data = synthetic.sample(prior, datasets, size, key=key)
    with float64():
        losses, moved = (np.asarray(each) for each in _losses(data.x, data.y, separation))
        true = jnp.array([[0.0, 2 * separation]])
        floor = float(loss_of_lines(true, (-separation, separation))[0])
    constant, platt, instance = losses[: len(FACTORS)], losses[-2], losses[-1]
    best = int(np.argmin(constant.mean(axis=1)))
    excess = constant - constant[best]
    error = excess.std(axis=1, ddof=1) / np.sqrt(datasets)
    close = np.flatnonzero(excess.mean(axis=1) <= error)
    others = {"platt": platt, "instance": instance}
    return {
        "best": float(FACTORS[best]),
        "least": float(FACTORS[close[0]]),
        "greatest": float(FACTORS[close[-1]]),
        "platt": 1 / (size // 2 + 2),
        "instance": float(moved.mean()),
        "loss_best": float(constant[best].mean()),
        **{f"loss_{name}": float(each.mean()) for name, each in others.items()},
        "floor": floor,
        **{
            f"error_{name}": float((each - constant[best]).std(ddof=1) / np.sqrt(datasets))
            for name, each in others.items()
        },
    }


@jax.jit
def _losses(x: jax.Array, y: jax.Array, separation: Any) -> tuple[jax.Array, jax.Array]:
    """Return expected losses (factors + 2, b), Platt's and the instance-based the last of them.

    Also how far the instance-based targets are from the labels on average, (b,).
    """
    labels = y.astype(float)
    factors = jnp.asarray(FACTORS)[:, None, None]
    constant = labels + factors * (1 - 2 * labels)
    ones = jnp.ones(x.shape)
    instance = batched_instance_targets(x[..., None], y, ones, jnp.zeros(()), "silverman", "pooled")
    # All data sets have the same class counts.
    half = 1 / (x.shape[1] // 2 + 2)
    platt = labels + half * (1 - 2 * labels)
    targets = jnp.concatenate([constant, platt[None], instance[None]])
    count = len(targets) * len(x)
    every = jnp.broadcast_to(x, targets.shape).reshape(count, -1)
    zero = jnp.zeros(count)
    found = fit_many(
        Regression(every[..., None], targets.reshape(count, -1), jnp.ones(every.shape), zero, zero)
    )
    lines = jnp.stack([found.intercept, found.coef[:, 0]], axis=1)
    loss = loss_of_lines(lines, (-separation, separation))
    return loss.reshape(len(targets), len(x)), jnp.abs(instance - labels).mean(axis=1)
