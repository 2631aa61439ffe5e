"""Frozen results of smoothing, losses, comparisons of methods, and data with known truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import bayescal as bc
from tests.frozen.case import Case, Results

#: Arguments of losses after logits and labels.
LOSSES: dict[str, list[dict[str, Any]]] = {
    "brier": [{}],
    "confidence_penalty": [{}, {"strength": 0.4}],
    "cross_entropy": [{}],
    "distillation": [{}, {"temperature": 3.0, "share": 0.2}],
    "focal": [{}, {"gamma": 0.7}],
    "instance_cross_entropy": [{"smoothing": 0.2}, {"smoothing": 0.2, "offset": 0.1}],
    "mmce": [{}, {"bandwidth": 0.2}],
    "smoothed_cross_entropy": [{"smoothing": 0.1}],
    "soft_ece": [{}, {"bins": 5, "temperature": 0.1, "order": 1}],
}
#: Losses that also take the logits of a teacher.
TAUGHT = ("distillation", "instance_cross_entropy")
SMOOTHING: dict[str, list[dict[str, Any]]] = {
    "constant_targets": [{"smoothing": 0.1}, {"smoothing": 0.1, "num_classes": 4}],
    "instance_targets": [
        {},
        {"bandwidth": "scott"},
        {"bandwidth": "cv"},
        {"bandwidth": 0.4, "scale": "diagonal"},
        {"scale": "pooled"},
    ],
    "network_instance_targets": [{"smoothing": 0.2}, {"smoothing": 0.2, "offset": 0.1}],
    "platt_targets": [{}],
}
COMPARISONS: dict[str, Callable[[np.ndarray], Any]] = {
    "average_ranks": bc.compare.average_ranks,
    "bayesian_signed_rank": lambda scores: bc.compare.bayesian_signed_rank(
        scores[:, 0], scores[:, 1], margin=0.01, draws=500
    ),
    "bayesian_signed_rank_matrix": lambda scores: bc.compare.bayesian_signed_rank_matrix(
        scores, margin=0.01, draws=500
    ),
    "friedman": bc.compare.friedman,
    "nemenyi": bc.compare.nemenyi,
    "wilcoxon": bc.compare.wilcoxon,
}


def cases() -> Iterator[Case]:
    """Yield the cases of all functions."""
    for name, several in LOSSES.items():
        for options in several:
            yield Case(f"loss: {name}({_shown(options)})", partial(_loss, name, options))
    yield Case("loss: instance_targets", _instance_targets)
    for name, several in SMOOTHING.items():
        for options in several:
            yield Case(f"smoothing: {name}({_shown(options)})", partial(_smooth, name, options))
    for ties in (False, True):
        suffix = "with ties" if ties else "without ties"
        for name in COMPARISONS:
            yield Case(f"{name}: {suffix}", partial(_compare, name, ties))
        yield Case(f"compare: {suffix}", partial(_compare_all, ties))
    yield Case("datasets: simplex", _simplex)
    yield Case("datasets: synthetic", _synthetic, slow=True)


def _shown(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())


def _rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return logits of 40 rows, logits of a teacher, and labels."""
    rng = np.random.default_rng(200)
    logits = 3 * rng.normal(size=(40, 4))
    logits[0] *= 100
    return logits, 2 * rng.normal(size=(40, 4)), rng.integers(0, 4, 40)


def _loss(name: str, options: dict[str, Any]) -> Results:
    """Compute a loss in double precision, and its gradient with respect to the logits."""
    logits, teacher, labels = _rows()
    rng = np.random.default_rng(201)
    weights, mask = rng.uniform(0.2, 2.5, 40), rng.random(40) < 0.8
    more = [teacher] if name in TAUGHT else []
    with jax.enable_x64(True):
        loss = partial(getattr(bc.losses, name), **options)
        arguments = [jnp.asarray(values) for values in (labels, *more)]
        value, slope = jax.value_and_grad(loss)(jnp.asarray(logits), *arguments)
        weighted = loss(jnp.asarray(logits), *arguments, weights=weights, mask=mask)
        return {"value": value, "gradient": slope[:6], "weighted": weighted}


def _instance_targets() -> Results:
    _, teacher, labels = _rows()
    with jax.enable_x64(True):
        result = bc.losses.instance_targets(jnp.asarray(teacher), jnp.asarray(labels), 0.2, 0.1)
        return {"targets": result[:10]}


def _smooth(name: str, options: dict[str, Any]) -> Results:
    rng = np.random.default_rng(202)
    labels = rng.integers(0, 2, 30)
    features = rng.normal(size=(30, 2)) + labels[:, None]
    function = partial(getattr(bc.smoothing, name), **options)
    if name == "network_instance_targets":
        return {"targets": function(*_rows()[1:])[:10]}
    if name == "constant_targets":
        return {"targets": function(labels)[:10]}
    arguments = (labels,) if name == "platt_targets" else (features, labels)
    return {
        "targets": function(*arguments)[:15],
        "weighted": function(*arguments, sample_weight=rng.uniform(0.2, 2.5, 30))[:15],
    }


def _scores(ties: bool) -> np.ndarray:
    """Return losses of four methods on 15 data sets."""
    rng = np.random.default_rng(203)
    scores = rng.normal([0.5, 0.52, 0.55, 0.48], 0.05, (15, 4)) + rng.normal(0, 0.2, (15, 1))
    return scores.round(1) if ties else scores


def _compare(name: str, ties: bool) -> Results:
    result = COMPARISONS[name](_scores(ties))
    return {"result": result}


def _compare_all(ties: bool) -> Results:
    names = ["raw", "beta", "isotonic", "temperature"]
    result = bc.compare.compare(_scores(ties), names=names, baseline="raw", draws=500)
    return {
        "ranks": result.ranks,
        "win_rates": result.win_rates,
        "improvement": result.improvement,
        "significant, wilcoxon": result.significant("wilcoxon"),
        "significant, nemenyi": result.significant("nemenyi"),
        "cliques": [len(clique) for clique in result.cliques()],
        "bayesian": result.bayesian,
    }


def _simplex() -> Results:
    result = bc.datasets.simplex.sample(12, seed=1)
    return {"probs": result.probs, "y": result.y, "truth": result.truth}


def _synthetic() -> Results:
    priors = bc.datasets.synthetic.experiments()
    result = bc.datasets.synthetic.sample(priors["c"], 2, 8, class_ratio=0.7, key=1)
    known = bc.GaussianPrior(mu0=dist.Normal(-1, 0.5), mu1=1.0, sigma=1.0)
    best = bc.datasets.synthetic.bayes_optimal_log_loss
    return {
        "x": result.x,
        "y": result.y,
        "parameters": result.parameters,
        "losses": {name: best(prior) for name, prior in [*priors.items(), ("known", known)]},
    }
