"""Calibrators with the interface of probmetrics, next to its own."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.base import clone

import bayescal as bc
from tests.calibrators.cases import DEFAULTS, Case

#: Options that replace long searches.
QUICK = {"Kernel": {"bandwidth": 0.1}, "OrderPreserving": {"hidden": (2, 2)}}

pytestmark = [
    pytest.mark.parity("probmetrics", "numba"),
    # Raised at its import.
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated"),
]


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("inner", [None, bc.Temperature()])
def test_it_is_one_of_theirs(k: int, inner: object) -> None:
    import torch
    from probmetrics import calibrators
    from probmetrics.distributions import CategoricalProbs

    from bayescal.adapters import ProbmetricsCalibrator

    rng = np.random.default_rng(0)
    z = rng.normal(0, 2, (300, k))
    y = (rng.random((300, 1)) > np.cumsum(softmax(z / 2, axis=1), axis=1)).sum(axis=1)
    probs = softmax(z, axis=1)
    calibrator = bc.Auto() if inner is None else clone(inner)  # type: ignore[type-var]
    expected = calibrator.fit(probs, y).predict_proba(probs)  # type: ignore[attr-defined]
    model = ProbmetricsCalibrator(inner)
    assert isinstance(model, calibrators.Calibrator)
    np.testing.assert_allclose(model.fit(probs, y).predict_proba(probs), expected, atol=1e-9)
    again = pickle.loads(pickle.dumps(clone(model).fit(probs, y)))
    np.testing.assert_allclose(again.predict_proba(probs), expected, atol=1e-9)
    target = CategoricalProbs(torch.as_tensor(probs))
    model.fit_torch(target, torch.as_tensor(y))
    result = model.predict_proba_torch(target).get_probs().numpy()
    np.testing.assert_allclose(result, expected, atol=1e-6)
    # The rows lack one class, and are in single precision.
    few = model.fit(probs[y > 0].astype(np.float32), y[y > 0]).predict_proba(probs)
    assert few.shape == (300, k)
    assert np.isfinite(few).all()
    # The second column rounds to one, while the first is not zero.
    sharp = softmax(np.stack([np.zeros(300), 20 + z[:, 0]], axis=1).astype(np.float32), axis=1)
    if k == 2 and inner is not None:
        expected = bc.Temperature().fit(sharp, y).predict_proba(sharp)
        result = model.fit(sharp, y).predict_proba(sharp)
        np.testing.assert_allclose(result, expected, rtol=1e-6)
    with pytest.raises(ValueError, match="inputs='probs'"):
        ProbmetricsCalibrator(bc.Temperature(inputs="logits")).fit(probs, y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("case", DEFAULTS, ids=lambda case: case.calibrator.__name__)
def test_every_calibrator_serves_theirs(case: Case) -> None:
    """Check that tensors equal arrays, losses on new rows decrease, and a class may be missing."""
    import torch
    from probmetrics.distributions import CategoricalProbs
    from probmetrics.metrics import Metrics

    from bayescal.adapters import ProbmetricsCalibrator

    k = 2 if case.binary else 3
    rng = np.random.default_rng(0)
    z = rng.normal(0, 3, (3000, k))
    y = (rng.random((3000, 1)) > np.cumsum(softmax(z / 3, axis=1), axis=1)).sum(axis=1)
    probs, train = softmax(z, axis=1), slice(0, 1500)
    new = probs[1500:], torch.as_tensor(y[1500:])
    model = ProbmetricsCalibrator(case(**QUICK.get(case.calibrator.__name__, {})))
    expected = model.fit(probs[train], y[train]).predict_proba(new[0])
    model.fit_torch(CategoricalProbs(torch.as_tensor(probs[train])), torch.as_tensor(y[train]))
    result = model.predict_proba_torch(CategoricalProbs(torch.as_tensor(new[0]))).get_probs()
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-6)
    losses = Metrics.from_names(["logloss", "brier", "ece-15", "smece"])
    before = losses.compute_all_from_labels_probs(new[1], torch.as_tensor(new[0]))
    after = losses.compute_all_from_labels_probs(new[1], torch.as_tensor(expected))
    for name, loss in before.items():
        assert after[name] < loss, name
    if k > 2:
        kept = y[train] < k - 1
        few = model.fit(probs[train][kept], y[train][kept]).predict_proba(new[0])
        assert few.shape == new[0].shape and (few >= 0).all()
        np.testing.assert_allclose(few.sum(axis=1), 1, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")
def test_opponents_of_the_arena_are_theirs() -> None:
    from probmetrics.calibrators import get_calibrator

    from benchmarks.studies._probmetrics import available, peers

    assert available()
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 200)
    y = (rng.random((200, 1)) > np.cumsum(p, axis=1)).sum(axis=1)
    result = peers()["probmetrics svs"](p, y, p)
    theirs = get_calibrator("svs")
    theirs.fit(p, y)
    np.testing.assert_allclose(result, theirs.predict_proba(p))
    for name, fit in peers().items():
        assert fit(p, y, p[:5]).shape == (5, 3), name
