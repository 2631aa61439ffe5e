"""How many draws from the prior suffice: log loss by their number, as in figure 14 of the thesis.

Losses are expectations over test points given the true parameters, so they have no noise from test
sets: what differs from quadrature is due to the draws alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayescal import inference, posterior
from bayescal._core.keys import as_key
from bayescal._core.precision import float64
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
#: Of Sobol points no more are taken: their error is that of rounding by then.
_MOST_SOBOL = 1 << 16
_N_TRAIN = 50


def _priors() -> dict[str, Prior]:
    """Return the two priors of the figure."""
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
    r"""Compute the log loss by the number of draws, and say how many suffice.

    Parameters
    ----------
    out : path
        Folder for ``figure_14.csv``, ``figure_14.json`` and ``figure_14.svg``; made if missing.
    datasets : int
        Data sets of 50 points for each prior.
    most : int
        The greatest number of draws, a power of two of at least 16; the others are the powers
        below.
    repeats : int
        Independent sequences of draws, by plain Monte Carlo and of scrambled Sobol points.
    tolerance : float
        Sufficient is the least number of draws from which on, in every repeat, the mean log loss
        differs from that of quadrature by at most this, in nats.
    seed : int
    about : mapping of str to str, optional
        Versions and the like; written to the summary.
    progress : callable, optional
        Called with prior and integrator, the number of sequences done and that of all.

    Returns
    -------
    dict
        The content of ``figure_14.json``. By prior: ``floor``, the loss of the true parameters;
        ``quadrature`` by method; by integrator and method the ``loss`` (sizes, repeats), the mean
        over data sets, and the number of draws that is ``sufficient``, None if none is.

    Raises
    ------
    ValueError
        For numbers out of range.
    OSError
        If results cannot be written.

    Notes
    -----
    A prefix of a sequence of draws is a sequence of draws: one pass over ``most`` draws, with
    running sums on a logarithmic scale, gives the losses for all sizes. Prefixes of Sobol sequences
    are taken at sixteen times powers of two, sixteen scrambles together, as in
    ``integrator="sobol"``, up to 65,536 points.

    References
    ----------
    M. Maher (2020), Instance-based label smoothing, section 4.2.1, figure 14.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = run(folder, datasets=10, most=4096, repeats=2)
    >>> first = next(iter(found["priors"].values()))
    >>> 16 <= first["montecarlo"]["preds"]["sufficient"] <= 4096
    True
    """
    datasets, repeats = check_count(datasets, "datasets"), check_count(repeats, "repeats")
    most = check_count(most, "most")
    if most < 16 or most & (most - 1):
        raise ValueError(f"most must be a power of two of at least 16, got {most}")
    if not tolerance > 0:
        raise ValueError(f"tolerance must be positive, got {tolerance}")
    kept = Results("synthetic", out, about)
    sizes = [1 << k for k in range(most.bit_length())]
    known = _priors()
    total, done = 2 * repeats * len(known), 0
    found: dict[str, Any] = {}
    for place, (name, prior) in enumerate(known.items()):
        key = jax.random.fold_in(as_key(seed), place)
        problem, floor = _problem(prior, datasets, key)
        facts: dict[str, Any] = {"floor": floor, "quadrature": _exact(prior, problem)}
        for integrator in ("montecarlo", "sobol"):
            # Sixteen scrambles have a point each at least.
            few = [size for size in sizes if 16 <= size <= _MOST_SOBOL]
            own_sizes = sizes if integrator == "montecarlo" else few
            losses = []
            for repeat in range(repeats):
                if progress:
                    progress(f"{name}: {integrator}", done, total)
                own_key = jax.random.fold_in(key, 2 + repeat)
                sequence = _sequence(prior, integrator, own_sizes[-1], own_key)
                losses.append(by_size(problem, sequence, own_sizes))
                done += 1
            facts[integrator] = {
                method: _judge(
                    own_sizes,
                    np.stack([own[:, j] for own in losses], axis=1),
                    facts["quadrature"][method],
                    tolerance,
                )
                for j, method in enumerate(METHODS)
            }
        found[name] = facts
    if progress:
        progress("", done, total)
    summary = {
        "datasets": datasets,
        "n_train": _N_TRAIN,
        "repeats": repeats,
        "tolerance": tolerance,
        "seed": seed,
        "priors": found,
    }
    rows = [
        [name, integrator, method, size, repeat, loss, facts["quadrature"][method], facts["floor"]]
        for name, facts in found.items()
        for integrator in ("montecarlo", "sobol")
        for method in METHODS
        for size, some in zip(*(facts[integrator][method][k] for k in ("sizes", "loss")))  # noqa: B905
        for repeat, loss in enumerate(some)
    ]
    head = "prior", "integrator", "method", "draws", "repeat", "log_loss", "quadrature", "floor"
    kept.table("figure_14", head, rows)
    draw_figure(kept.folder / "figure_14.svg", summary, METHODS)
    return kept.summary("figure_14", summary)


def _problem(prior: Prior, datasets: int, key: jax.Array) -> tuple[Problem, float]:
    """Draw data sets; return them, and the mean loss of their true parameters."""
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
    """Return mean losses by quadrature, by method."""
    with float64():
        data = problem.x, problem.y
        found = posterior(prior, data, integrator="quadrature", class_prior=0.5)
        odds = {m: found.predict(problem.nodes, method=m).log_odds for m in METHODS}
        return {m: float(loss_at_nodes(each, problem.weights).mean()) for m, each in odds.items()}


def _sequence(prior: Prior, integrator: str, most: int, key: jax.Array) -> np.ndarray:
    """Return draws (most, 2) of the means."""
    with float64():
        if integrator == "montecarlo":
            params = draw(prior, key, most)[0]
            order = slice(None)
        else:
            rule, none = Sobol(), jnp.zeros(())
            params = _at_points(
                prior,
                rule.prepare(inference.Problem(prior, none, none, none, none), key, most, False),
            )
            # Scrambles lie one after the other: in turn, a prefix holds as much of each.
            order = np.arange(most).reshape(rule.replicates, -1).T.ravel()
        return np.stack([np.asarray(params[m])[order] for m in ("mu0", "mu1")], axis=1)


@jax.jit
def _at_points(prior: Prior, points: jax.Array) -> dict[str, Any]:
    """Return the parameters at points of the unit square."""
    none = jnp.zeros(())
    problem = inference.Problem(prior, none, none, none, points)
    return Sobol().realize(problem, len(points)).params


def _judge(sizes: list[int], losses: np.ndarray, exact: float, tolerance: float) -> dict[str, Any]:
    """Return losses (sizes, repeats), and from which size on all are close to the exact one."""
    far = np.flatnonzero((np.abs(losses - exact) > tolerance).any(axis=1))
    first = int(far[-1]) + 1 if len(far) else 0
    sufficient = sizes[first] if first < len(sizes) else None
    return {"sizes": sizes, "loss": losses.tolist(), "sufficient": sufficient}
