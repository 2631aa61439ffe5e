"""The best constant smoothing factor by size and separation, as in figure 15 of the thesis.

Classes are N(-m, 1) and N(m, 1). Logistic regressions are fitted to labels moved by a constant, and
compared by their expected log loss under the known densities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.execution.precision import float64
from bayescal._core.random.keys import as_key
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
        Folder for ``figure_15.csv``, ``figure_15.json`` and ``figure_15.svg``; created if missing.
    datasets : int
        Number of data sets for each size and separation.
    sizes : sequence of int
        Sizes of the balanced training sets.
    separations : sequence of float
        Values of m, where the class means are -m and m, in standard deviations.
    seed : int
    about : mapping of str to str, optional
        Versions and similar facts; written to the summary.
    progress : callable, optional
        Called with a size and separation, the number of finished ones and the total number.

    Returns
    -------
    dict
        The content of ``figure_15.json``: ``factors``, the grid, and ``rows``. Each row has size,
        separation, the ``best`` factor, the ``least`` and ``greatest`` factor whose loss is at most
        one (paired) standard error above the best, the factor of ``platt``, the mean factor of
        ``instance``; the mean losses of these three; ``floor``, the loss of the true parameters;
        and standard errors of the differences in loss of Platt's and the instance-based factors
        from the best.

    Raises
    ------
    ValueError
        If numbers are out of range.
    OSError
        If results cannot be written.

    Notes
    -----
    Factors are 40 logarithmically spaced values from 1e-5 to 0.3. Labels become the factor and one
    minus the factor. The best factor of the grid has the smallest mean loss over all data sets.
    This choice uses the truth, so its loss is a bound for methods that have to estimate the factor.
    All factors and data sets of a size are fitted in one compiled program.

    References
    ----------
    M. Maher (2020), Instance-based label smoothing, section 5.1, figure 15.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = run(folder, datasets=20, sizes=[20], separations=[1.0])
    >>> row = result["rows"][0]
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
    store = Results("synthetic", out, about)
    cells = [(n, number, m) for n in sizes for number, m in enumerate(separations)]
    rows = []
    for size, number, separation in counted(
        cells, lambda cell: f"n = {cell[0]}, m = {cell[2]:g}", progress
    ):
        key = jax.random.fold_in(jax.random.fold_in(as_key(seed), size), number)
        facts = _judge(size, separation, datasets, key)
        rows.append({"n_train": size, "separation": separation, **facts})
    summary = {
        "datasets": datasets,
        "seed": seed,
        "factors": FACTORS.tolist(),
        "rows": rows,
    }
    head = "n_train", "separation", *_COLUMNS
    store.table("figure_15", head, [[row[name] for name in head] for row in rows])
    draw_figure(store.folder / "figure_15.svg", rows)
    return store.summary("figure_15", summary)


def _judge(size: int, separation: float, datasets: int, key: jax.Array) -> dict[str, float]:
    """Find the best constant factor for one size and separation."""
    prior = GaussianPrior(mu0=-separation, mu1=separation, sigma=1.0)
    data = synthetic.sample(prior, datasets, size, key=key)
    with float64():
        losses, mean_factors = map(np.asarray, _losses(data.x, data.y, separation))
        true = jnp.array([[0.0, 2 * separation]])
        floor = float(loss_of_lines(true, (-separation, separation))[0])
    constant, platt, instance = losses[: len(FACTORS)], losses[-2], losses[-1]
    best = int(np.argmin(constant.mean(axis=1)))
    excess = constant - constant[best]
    standard_error = excess.std(axis=1, ddof=1) / np.sqrt(datasets)
    close = np.flatnonzero(excess.mean(axis=1) <= standard_error)
    compared = {"platt": platt, "instance": instance}
    return {
        "best": float(FACTORS[best]),
        "least": float(FACTORS[close[0]]),
        "greatest": float(FACTORS[close[-1]]),
        "platt": 1 / (size // 2 + 2),
        "instance": float(mean_factors.mean()),
        "loss_best": float(constant[best].mean()),
        **{f"loss_{name}": float(values.mean()) for name, values in compared.items()},
        "floor": floor,
        **{
            f"error_{name}": float((values - constant[best]).std(ddof=1) / np.sqrt(datasets))
            for name, values in compared.items()
        },
    }


@jax.jit
def _losses(x: jax.Array, y: jax.Array, separation: Any) -> tuple[jax.Array, jax.Array]:
    """Compute expected losses (factors + 2, b) and mean instance-based factors (b,).

    The last two rows of losses are those of Platt's and of the instance-based targets. A mean
    factor is the mean distance of the instance-based targets from the labels.
    """
    labels = y.astype(float)
    factors = jnp.asarray(FACTORS)[:, None, None]
    constant = labels + factors * (1 - 2 * labels)
    ones = jnp.ones(x.shape)
    instance = batched_instance_targets(x[..., None], y, ones, jnp.zeros(()), "silverman", "pooled")
    # All data sets have the same class counts.
    platt_factor = 1 / (x.shape[1] // 2 + 2)
    platt = labels + platt_factor * (1 - 2 * labels)
    targets = jnp.concatenate([constant, platt[None], instance[None]])
    count = len(targets) * len(x)
    inputs = jnp.broadcast_to(x, targets.shape).reshape(count, -1)
    zero = jnp.zeros(count)
    fits = fit_many(
        Regression(
            inputs[..., None], targets.reshape(count, -1), jnp.ones(inputs.shape), zero, zero
        )
    )
    lines = jnp.stack([fits.intercept, fits.coef[:, 0]], axis=1)
    loss = loss_of_lines(lines, (-separation, separation))
    return loss.reshape(len(targets), len(x)), jnp.abs(instance - labels).mean(axis=1)
