"""Log loss by the number of draws from the prior, as in figure 14 of the thesis.

Losses are expectations over test points given the true parameters, so they have no noise from test
sets. Differences from quadrature are caused by the draws alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayescal import inference, posterior
from bayescal._core.execution.precision import float64
from bayescal._core.random.keys import as_key
from bayescal.data.checks import check_count
from bayescal.datasets import synthetic
from bayescal.inference.integrators.sobol import Sobol
from bayescal.models import GaussianPrior, Prior
from bayescal.models.prior import draw
from benchmarks.studies._draws_picture import draw_figure
from benchmarks.studies._draws_sums import Problem, by_size
from benchmarks.studies._known_truth import common_nodes, loss_at_nodes, weights_of
from benchmarks.studies.store import Progress, Results

__all__ = ["METHODS", "run"]

METHODS = "preds", "coeffs", "map"
#: Largest number of Sobol points; their error has then reached that of rounding.
_MAX_SOBOL_POINTS = 1 << 16
_N_TRAIN = 50


def _priors() -> dict[str, Prior]:
    """Build the two priors of the figure."""
    from numpyro import distributions as dist

    return {
        f"U({-far:g}, {0 - near:g}), U({near:g}, {far:g})": GaussianPrior(
            mu0=dist.Uniform(-far, -near), mu1=dist.Uniform(near, far), sigma=1.0
        )
        for near, far in ((0.0, 2.0), (1.0, 3.0))
    }


def run(
    out: str | Path,
    *,
    datasets: int = 100,
    most: int = 1 << 20,
    repeats: int = 4,
    tolerance: float = 1e-3,
    seed: int = 0,
    about: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    r"""Compute the log loss by the number of draws, and find how many draws suffice.

    Parameters
    ----------
    out : path
        Folder for ``figure_14.csv``, ``figure_14.json`` and ``figure_14.svg``; created if missing.
    datasets : int
        Number of data sets of 50 points for each prior.
    most : int
        The largest number of draws, a power of two of at least 16. All smaller powers of two are
        used too.
    repeats : int
        Number of independent sequences of Monte-Carlo draws and of scrambled Sobol points.
    tolerance : float
        A number of draws is sufficient if for it and all larger numbers, in every repeat, the mean
        log loss differs from that of quadrature by at most this, in nats.
    seed : int
    about : mapping of str to str, optional
        Versions and similar facts; written to the summary.
    progress : callable, optional
        Called with prior and integrator, the number of finished sequences and the total number.

    Returns
    -------
    dict
        The content of ``figure_14.json``. ``priors`` contains, by prior: ``floor``, the loss of the
        true parameters; ``quadrature``, the loss by method; and by integrator and method, the
        ``loss`` (sizes, repeats), a mean over data sets, and the smallest ``sufficient`` number of
        draws, or None.

    Raises
    ------
    ValueError
        If numbers are out of range.
    OSError
        If results cannot be written.

    Notes
    -----
    A prefix of a sequence of draws is a sequence of draws. So one pass over ``most`` draws, with
    running sums on a logarithmic scale, gives the losses for all sizes. Prefixes of Sobol sequences
    have sizes of sixteen times powers of two up to 65,536, divided among sixteen scrambles, as in
    ``integrator="sobol"``.

    References
    ----------
    M. Maher (2020), Instance-based label smoothing, section 4.2.1, figure 14.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = run(folder, datasets=10, most=4096, repeats=2)
    >>> first = next(iter(result["priors"].values()))
    >>> 16 <= first["montecarlo"]["preds"]["sufficient"] <= 4096
    True
    """
    datasets, repeats = check_count(datasets, "datasets"), check_count(repeats, "repeats")
    most = check_count(most, "most")
    if most < 16 or most & (most - 1):
        raise ValueError(f"most must be a power of two of at least 16, got {most}")
    if not tolerance > 0:
        raise ValueError(f"tolerance must be positive, got {tolerance}")
    store = Results("synthetic", out, about)
    sizes = [1 << k for k in range(most.bit_length())]
    priors = _priors()
    total, done = 2 * repeats * len(priors), 0
    by_prior: dict[str, Any] = {}
    for number, (name, prior) in enumerate(priors.items()):
        key = jax.random.fold_in(as_key(seed), number)
        problem, floor = _problem(prior, datasets, key)
        facts: dict[str, Any] = {"floor": floor, "quadrature": _exact(prior, problem)}
        for integrator in ("montecarlo", "sobol"):
            # Each of the sixteen scrambles needs at least one point.
            sobol_sizes = [size for size in sizes if 16 <= size <= _MAX_SOBOL_POINTS]
            integrator_sizes = sizes if integrator == "montecarlo" else sobol_sizes
            losses = []
            for repeat in range(repeats):
                if progress:
                    progress(f"{name}: {integrator}", done, total)
                repeat_key = jax.random.fold_in(key, 2 + repeat)
                sequence = _sequence(prior, integrator, integrator_sizes[-1], repeat_key)
                losses.append(by_size(problem, sequence, integrator_sizes))
                done += 1
            facts[integrator] = {
                method: _judge(
                    integrator_sizes,
                    np.stack([by_method[:, j] for by_method in losses], axis=1),
                    facts["quadrature"][method],
                    tolerance,
                )
                for j, method in enumerate(METHODS)
            }
        by_prior[name] = facts
    if progress:
        progress("", done, total)
    summary = {
        "datasets": datasets,
        "n_train": _N_TRAIN,
        "repeats": repeats,
        "tolerance": tolerance,
        "seed": seed,
        "priors": by_prior,
    }
    rows = [
        [name, integrator, method, size, repeat, loss, facts["quadrature"][method], facts["floor"]]
        for name, facts in by_prior.items()
        for integrator in ("montecarlo", "sobol")
        for method in METHODS
        for size, by_repeat in zip(*(facts[integrator][method][k] for k in ("sizes", "loss")))  # noqa: B905
        for repeat, loss in enumerate(by_repeat)
    ]
    head = "prior", "integrator", "method", "draws", "repeat", "log_loss", "quadrature", "floor"
    store.table("figure_14", head, rows)
    draw_figure(store.folder / "figure_14.svg", summary, METHODS)
    return store.summary("figure_14", summary)


def _problem(prior: Prior, datasets: int, key: jax.Array) -> tuple[Problem, float]:
    """Draw data sets, and compute the mean loss of their true parameters."""
    data = synthetic.sample(prior, datasets, _N_TRAIN, key=key)
    means = data.parameters["mu0"], data.parameters["mu1"]
    nodes = common_nodes(np.stack(means))
    weights = weights_of(nodes, means[0]), weights_of(nodes, means[1])
    sums = np.stack(
        [
            np.stack([(data.y == y).sum(axis=1), np.where(data.y == y, data.x, 0).sum(axis=1)], -1)
            for y in (0, 1)
        ],
        axis=1,
    )
    slope = means[1] - means[0]
    line = slope[:, None] * (nodes - 0.5 * (means[0] + means[1])[:, None])
    with float64():
        floor = float(loss_at_nodes(jnp.asarray(line), weights).mean())
    return Problem(data.x, data.y, sums, nodes, weights), floor


def _exact(prior: Prior, problem: Problem) -> dict[str, float]:
    """Compute the mean loss of each method by quadrature."""
    with float64():
        data = problem.x, problem.y
        predictor = posterior(prior, data, integrator="quadrature", class_prior=0.5)
        odds = {m: predictor.predict(problem.nodes, method=m).log_odds for m in METHODS}
        return {
            m: float(loss_at_nodes(log_odds, problem.weights).mean())
            for m, log_odds in odds.items()
        }


def _sequence(prior: Prior, integrator: str, most: int, key: jax.Array) -> np.ndarray:
    """Draw the means (most, 2)."""
    with float64():
        if integrator == "montecarlo":
            params = draw(prior, key, most)[0]
            order = slice(None)
        else:
            sobol, empty = Sobol(), jnp.zeros(())
            params = _at_points(
                prior,
                sobol.prepare(inference.Problem(prior, empty, empty, empty, empty), key, most, ()),
            )
            # Scrambles follow each other; interleaved, a prefix has equally many points of each.
            order = np.arange(most).reshape(sobol.replicates, -1).T.ravel()
        return np.stack([np.asarray(params[m])[order] for m in ("mu0", "mu1")], axis=1)


@jax.jit
def _at_points(prior: Prior, points: jax.Array) -> dict[str, Any]:
    """Compute the parameters at points of the unit square."""
    empty = jnp.zeros(())
    problem = inference.Problem(prior, empty, empty, empty, points)
    return Sobol().realize(problem, len(points)).params


def _judge(sizes: list[int], losses: np.ndarray, exact: float, tolerance: float) -> dict[str, Any]:
    """Find the size from which on all losses (sizes, repeats) are close to the exact loss."""
    far = np.flatnonzero((np.abs(losses - exact) > tolerance).any(axis=1))
    first = int(far[-1]) + 1 if len(far) else 0
    sufficient = sizes[first] if first < len(sizes) else None
    return {"sizes": sizes, "loss": losses.tolist(), "sufficient": sufficient}
