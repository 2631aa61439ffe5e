"""Invalid arguments are refused with a message that says what would be valid."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pyarrow as pa
import pytest
from scipy.special import expit
from sklearn.tree import DecisionTreeClassifier

import bayescal as bc
from bayescal import metrics
from bayescal.datasets.synthetic import sample

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=200)
P = expit(LOGITS)
Y = (RNG.random(200) < P).astype(int)
PAIRS = np.stack([1 - P, P], axis=1)
ROWS = RNG.dirichlet(np.ones(3), 200)
CLASS = RNG.integers(0, 3, 200)
BLOCKS = bc.Blocks([(P, Y)])
LATER = bc.PriorShift(bc.Temperature().fit(P, Y)).fit(P)


PRIOR = bc.GaussianPrior(0.0, 1.0, 1.0)
TREE = DecisionTreeClassifier(max_depth=1)


def negative_sigma() -> None:
    """A model with a negative standard deviation."""
    for name, mean in (("mu0", 0.0), ("mu1", 1.0), ("sigma", -9.0)):
        numpyro.sample(name, dist.Normal(mean, 0.1))


def draw_parameters(**others: np.ndarray) -> dict[str, np.ndarray]:
    """Return valid parameters of three data sets, with some replaced."""
    return {"mu0": np.zeros(3), "mu1": np.ones(3), "sigma": np.ones(3)} | others


def learned_calibrator(**options: object) -> bc.Temperature:
    """Return a calibrator whose parameters were changed after ``partial_fit``."""
    return bc.Temperature().partial_fit(ROWS, CLASS).set_params(**options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: metrics.best_threshold([[0, 1], [2, 0]], ROWS, CLASS),
            "probs must be of two classes, got 3",
        ),
        (lambda: metrics.roc_auc(ROWS, CLASS), "probs must be of two classes for roc_auc, got 3"),
        (
            lambda: metrics.interval("roc_auc", P, Y, n_bins=5),
            "roc_auc has no options, got 'n_bins'",
        ),
        (
            lambda: metrics.log_loss(BLOCKS, outcomes="fractional"),
            "outcomes must be 'labels' for blocks",
        ),
        (
            lambda: metrics.multilabel_ece(ROWS, np.zeros((200, 2), int)),
            r"y must have shape \(200, 3\) to match probs, got \(200, 2\)",
        ),
        (
            lambda: bc.evaluate(ROWS, CLASS, classes=np.array([1, "1", 2], object)),
            "classes must be labels of one kind, got",
        ),
        (
            lambda: learned_calibrator(inputs="logits").partial_fit(ROWS, CLASS),
            "inputs must be 'probs' as in earlier calls",
        ),
        (
            lambda: bc.Temperature().partial_fit(P, Y).partial_fit(bc.Blocks([(PAIRS, Y)])),
            "scores must have 1 columns as in earlier calls",
        ),
        (
            lambda: bc.Temperature(objective="adaptive_ece", inference="laplace").fit(ROWS, CLASS),
            "inference must be 'map' for objective='adaptive_ece'",
        ),
        (lambda: LATER.predict_interval(BLOCKS), "scores must be an array in memory, got"),
        (
            lambda: bc.PartialPooling().fit(
                P, Y, groups=pd.DataFrame(np.zeros((200, 2), int), columns=["a", "a"])
            ),
            "groups must have different names",
        ),
        (
            lambda: bc.Temperature().fit(bc.Blocks([(P.astype(complex), Y)])),
            "block 0: scores must be numeric, got dtype complex128",
        ),
        (
            lambda: bc.Temperature().fit(bc.Blocks([(np.ones((5, 0)), np.ones(5, int))])),
            r"block 0: scores must have shape \(n,\), \(n, 1\) or \(n, k\), got \(5, 0\)",
        ),
        (
            lambda: bc.Temperature().fit(pa.table({"y": Y, "w": P}), "y", "w"),
            r"scores must have at least one column, got only \['y', 'w'\]",
        ),
        (lambda: bc.CalibratedClassifier(TREE).fit(PAIRS, None), "requires y to be passed"),
        (
            lambda: bc.CalibratedClassifier(TREE).fit(PAIRS, np.where(Y, np.inf, 0.0)),
            "Input y contains infinity",
        ),
        (
            lambda: sample(PRIOR, 3, 10, class_ratio=1.2),
            "class_ratio must lie strictly between 0 and 1, got 1.2",
        ),
        (
            lambda: sample(PRIOR, 3, 10, parameters=dict(mu0=np.zeros(3))),
            "parameters must be mu0, mu1, sigma, got mu0",
        ),
        (
            lambda: sample(PRIOR, 3, 10, parameters=draw_parameters(mu0=np.zeros(2))),
            r"parameters\['mu0'\] must have 3 rows, one for each data set, got shape \(2,\)",
        ),
        (
            lambda: sample(
                PRIOR, 3, 10, parameters=draw_parameters(sigma=np.array([1.0, -1.0, np.nan]))
            ),
            "parameters must be valid, such as positive deviations; 2 of 3 data sets",
        ),
        (
            lambda: sample(bc.GaussianPrior(model=negative_sigma), 3, 10),
            "prior must give valid parameters only, such as positive deviations; 3 of 3 data sets",
        ),
    ],
)
def test_messages(call: Callable[[], object], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_what_cannot_be_saved_is_named(tmp_path: Path) -> None:
    fitted = bc.Temperature().fit(P, Y)
    fitted.classes_ = np.array([object(), object()])
    with pytest.raises(TypeError, match="must hold numbers, strings or dates to be saved"):
        bc.save(fitted, tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_dates_and_missing_values_are_groups() -> None:
    days = np.array(["2026-01-01", "2026-01-02", "NaT"], "datetime64[D]")[CLASS]
    fitted = bc.PartialPooling().fit(P, Y, groups=days)
    levels = [effect.level for effect in fitted.group_effects()]
    assert levels == [(None,), ("2026-01-01",), ("2026-01-02",)]
    new = fitted.predict_proba(P[:3], groups=np.array(["2026-01-02"] * 3, "datetime64[D]"))
    expected = (
        bc.PartialPooling()
        .fit(P, Y, groups=days.astype(str))
        .predict_proba(P[:3], groups=["2026-01-02"] * 3)
    )
    np.testing.assert_allclose(new, expected, atol=1e-12)
