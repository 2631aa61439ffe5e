"""Multicalibration: final violations, gains, and invariance to row order and repetition."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import bayescal as bc


def simulate(n, seed):
    """Draw probabilities, labels and three overlapping groups."""
    rng = np.random.default_rng(seed)
    p = rng.beta(1.5, 2.5, n)
    groups = rng.random((n, 3)) < [0.4, 0.3, 0.03]
    a, b, c = groups.T
    z = logit(p) * np.where(a, 0.6, 1.2) + np.where(b, -0.7, 0.2) + np.where(c, 1.0, 0.0)
    return p, (rng.random(n) < expit(z)).astype(int), groups


P, Y, GROUPS = simulate(3000, 0)


def violations(f, y, groups, w, bins):
    """Compute the violations of all cells with masks."""
    everyone = np.append(groups, np.ones((len(f), 1), bool), axis=1)
    result = []
    for group in everyone.T:
        for lower in [None, *range(bins)]:
            inside = np.ceil(f * bins) - 1 == lower if lower is not None else True
            rows = group & inside
            if (w[rows] > 0).any():
                share = w[rows].sum() / w.sum()
                result.append(math.sqrt(share) * abs(np.average((y - f)[rows], weights=w[rows])))
    return result


@pytest.mark.parametrize("tolerance", [None, 0.01])
@pytest.mark.parametrize("bins", [1, 7])
def test_no_cell_is_wrong_by_more_than_the_tolerance(tolerance, bins):
    w = np.random.default_rng(1).integers(0, 4, len(P))
    fitted = bc.Multicalibration(bins, tolerance).fit(P, Y, GROUPS, w)
    assert fitted.status_ == "converged" and fitted.n_iter_ == len(fitted.patches_) > 0
    if tolerance is None:
        assert fitted.tolerance_ == pytest.approx(math.sqrt(math.log(8 * (bins + 1)) / 2 / w.sum()))
    assert max(violations(P, Y, GROUPS, w, bins)) > 2 * fitted.tolerance_
    f = fitted.predict_proba(P, GROUPS)
    np.testing.assert_allclose(f.sum(axis=1), 1)
    most = max(violations(f[:, 1], Y, GROUPS, w, bins))
    assert most <= fitted.tolerance_ * (1 + 1e-9)
    assert most == pytest.approx(fitted.violation_, rel=1e-9)
    loss = bc.metrics.log_loss(f, Y, weights=w)
    assert fitted.losses_[-1] == pytest.approx(loss, rel=1e-9)


def test_the_first_patch_is_the_best_shift_of_the_worst_cell():
    with pytest.warns(ConvergenceWarning, match="raise either"):
        fitted = bc.Multicalibration(5, max_iter=1).fit(P, Y, GROUPS)
    assert fitted.status_ == "limit" and fitted.n_iter_ == 1
    ((group, cell, shift),) = fitted.patches_
    rows = np.append(GROUPS, np.ones((len(P), 1), bool), axis=1)[:, group]
    rows = rows & (np.ceil(P * 5) - 1 == cell) if cell < 5 else rows
    violation = math.sqrt(rows.mean()) * abs((Y - P)[rows].mean())
    assert violation == pytest.approx(max(violations(P, Y, GROUPS, np.ones(len(P)), 5)))

    def penalized(delta):
        z = logit(P[rows]) + delta
        return np.logaddexp(0, np.where(Y[rows] == 1, -z, z)).sum() + delta**2 / 2

    assert shift == pytest.approx(minimize_scalar(penalized, tol=1e-12).x, abs=1e-6)
    f = fitted.predict_proba(P, GROUPS)[:, 1]
    np.testing.assert_array_equal(f[~rows], P[~rows])
    np.testing.assert_allclose(f[rows], expit(logit(P[rows]) + shift), rtol=1e-12)


def test_each_patch_lowers_the_log_loss_by_what_is_stated():
    fitted = bc.Multicalibration(tolerance=0.012).fit(P, Y, GROUPS)
    # Cells with such an error have more weight than tolerance**2 * n.
    m = 0.012**2 * len(P)
    assert (np.diff(fitted.losses_) <= -(0.012**2) * 2 * m / (m + 4)).all()


def test_weights_are_repetitions_and_order_says_nothing():
    w = np.random.default_rng(2).integers(0, 3, len(P))
    weighted = bc.Multicalibration().fit(P, Y, GROUPS, w)
    again = np.random.default_rng(3).permutation(np.repeat(np.arange(len(P)), w))
    repeated = bc.Multicalibration().fit(P[again], Y[again], GROUPS[again][:, [2, 0, 1]])
    assert weighted.n_iter_ == repeated.n_iter_ > 3
    np.testing.assert_allclose(
        repeated.predict_proba(P, GROUPS[:, [2, 0, 1]]),
        weighted.predict_proba(P, GROUPS),
        rtol=1e-7,
    )


def test_names_of_rows_without_weight_are_no_groups():
    names = np.where(GROUPS[:, 0], "b", "a").astype(object)
    weights = np.ones(len(P))
    names[5], weights[5] = "c", 0
    left = np.arange(len(P)) != 5
    result = bc.Multicalibration().fit(P, Y, names, weights)
    expected = bc.Multicalibration().fit(P[left], Y[left], names[left])
    assert result.groups_ == expected.groups_ == ["a", "b"]
    assert result.tolerance_ == expected.tolerance_
    assert result.patches_ == expected.patches_


def test_labels_names_and_columns():
    frame = pd.DataFrame(GROUPS, columns=["a", "b", "c"])
    text = np.array(["no", "yes"])[Y]
    both = pd.DataFrame({"yes": P, "no": 1 - P})
    before = P.copy(), GROUPS.copy()
    fitted = clone(bc.Multicalibration(bins=5)).fit(both, text, frame)
    assert fitted.classes_.tolist() == ["no", "yes"] and fitted.groups_ == ["a", "b", "c"]
    expected = bc.Multicalibration(bins=5).fit(P, Y, GROUPS).predict_proba(P, GROUPS)
    np.testing.assert_allclose(fitted.predict_proba(both, frame[["c", "a", "b"]]), expected)
    np.testing.assert_allclose(fitted.predict_proba(P, GROUPS), expected)
    classes = np.array(["no", "yes"])[expected.argmax(axis=1)]
    np.testing.assert_array_equal(fitted.predict(P, GROUPS), classes)
    np.testing.assert_array_equal(P, before[0])
    np.testing.assert_array_equal(GROUPS, before[1])
    with pytest.raises(ValueError, match=r"groups must have the columns \['a', 'b', 'c'\] of"):
        fitted.predict_proba(P, frame.rename(columns={"a": "d"}))


def test_text_names_the_group_of_each_row(tmp_path):
    names = np.array(["north", "south", "west"])[np.arange(len(P)) % 3]
    columns = pd.get_dummies(pd.Series(names))
    fitted = bc.Multicalibration(bins=5).fit(P, Y, names)
    expected = bc.Multicalibration(bins=5).fit(P, Y, columns)
    assert fitted.groups_ == expected.groups_ == ["north", "south", "west"]
    bc.save(fitted, tmp_path / "m.safetensors")
    for model in (fitted, bc.load(tmp_path / "m.safetensors")):
        probs = model.predict_proba(P[:4], ["west", "north", "south", "overseas"])
        frame = columns.iloc[[2, 0, 1, 0]].copy()
        frame.iloc[3] = False
        np.testing.assert_allclose(probs, expected.predict_proba(P[:4], frame), rtol=1e-12)
    plain = bc.Multicalibration(bins=5).fit(P, Y, columns.to_numpy())
    with pytest.raises(ValueError, match="3 columns as in the fit, got one name for a row"):
        plain.predict_proba(P, names)


def test_numbers_are_names_too():
    frame = pd.DataFrame(GROUPS, columns=pd.Index([0, 1, 2]))
    fitted = bc.Multicalibration().fit(P, Y, frame)
    expected = fitted.predict_proba(P, GROUPS)
    np.testing.assert_array_equal(fitted.predict_proba(P, frame[[2, 0, 1]]), expected)
    with pytest.raises(ValueError, match="groups must have different names"):
        fitted.predict_proba(P, frame[[0, 0, 1]])


def test_weights_that_are_no_counts_are_shares():
    w = np.random.default_rng(4).gamma(2.0, size=len(P))
    fitted, scaled = (
        bc.Multicalibration().fit(P, Y, GROUPS, weights) for weights in (w, w * math.e**9)
    )
    n = w.sum() ** 2 / (w**2).sum()
    assert fitted.tolerance_ == pytest.approx(math.sqrt(math.log(88) / 2 / n))
    assert fitted.status_ == "converged" and fitted.n_iter_ == scaled.n_iter_ > 2
    f, g = (model.predict_proba(P, GROUPS)[:, 1] for model in (fitted, scaled))
    np.testing.assert_allclose(f, g, rtol=1e-7)
    assert max(violations(f, Y, GROUPS, w, 10)) <= fitted.tolerance_ * (1 + 1e-9)


def test_certain_probabilities_that_are_wrong():
    p, y = np.repeat([0.0, 1.0], 200), np.repeat([1, 0], 200)
    groups = np.stack([p == 0, p == 1], axis=1)
    fitted = bc.Multicalibration().fit(p, y, groups)
    f = fitted.predict_proba(p, groups)[:, 1]
    assert fitted.status_ == "converged" and ((f > 0) & (f < 1)).all()
    assert (np.abs(y - f) < 0.1).all()


def test_errors():
    model = bc.Multicalibration()
    with pytest.raises(NotFittedError):
        model.predict_proba(P, GROUPS)
    with pytest.raises(ValueError, match=r"groups must have shape \(n, g\)"):
        model.fit(P, Y, GROUPS[:, 0])
    with pytest.raises(ValueError, match="sample_weight must not be negative"):
        model.fit(P, Y, GROUPS, -np.ones(len(P)))
    with pytest.raises(ValueError, match=r"probs must lie in \[0, 1\]"):
        model.fit(P * 3, Y, GROUPS)
    with pytest.raises(ValueError, match="classes"):
        model.fit(P, Y * 0, GROUPS)
    with pytest.raises(
        ValueError, match=r"probs must have shape \(n,\) or \(n, 2\), got \(3000, 3\)"
    ):
        model.fit(np.full((len(P), 3), 1 / 3), Y, GROUPS)
    with pytest.raises(ValueError, match="groups must have 3 columns as in the fit, got 2"):
        model.fit(P, Y, GROUPS).predict_proba(P, GROUPS[:, :2])
    for wrong in ({"bins": 0}, {"tolerance": 0.0}, {"tolerance": np.inf}, {"max_iter": 0}):
        (name,) = wrong
        with pytest.raises(ValueError, match=f"{name} must be"):
            bc.Multicalibration(**wrong).fit(P, Y, GROUPS)
