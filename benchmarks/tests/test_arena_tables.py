"""Models with tied or skewed scores, for the arena."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from benchmarks.arena_tables import Biased, Rounded, Votes, tied_models


def test_votes_are_zeros_and_ones_and_rounded_rows_have_few_values() -> None:
    X, y = load_iris(return_X_y=True)
    line = LogisticRegression(max_iter=1000)
    plain = line.fit(X, y)
    votes = Votes(line).fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(votes.argmax(axis=1), plain.predict(X))
    assert set(np.unique(votes)) == {0.0, 1.0} and (votes.sum(axis=1) == 1).all()
    rounded = Rounded(line).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(rounded.sum(axis=1), 1, rtol=1e-12)
    assert np.abs(rounded - plain.predict_proba(X)).max() < 0.1
    assert len(np.unique(rounded, axis=0)) < 30


def test_biased_training_moves_class_shares_and_keeps_every_class() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(900, 2)), np.repeat([0, 1, 2], 300)
    biased = Biased(LogisticRegression()).fit(X, y)
    assert biased.classes_.tolist() == [0, 1, 2]
    # Without information, predictions are the training frequencies: 1 to 1/3 to 1.
    np.testing.assert_allclose(
        biased.predict_proba(X).mean(axis=0), [3 / 7, 1 / 7, 3 / 7], atol=0.01
    )


def test_tied_models_predict_probabilities() -> None:
    X, y = load_iris(return_X_y=True)
    for name, model in tied_models(0).items():
        probs = model.fit(X, y).predict_proba(X)
        assert probs.shape == (150, 3), name
        np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-6, err_msg=name)
