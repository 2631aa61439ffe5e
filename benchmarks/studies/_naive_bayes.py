"""Models of naive Bayes for the Adult data; the paper does not publish which one it used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

VARIABLES = ("workclass", "education-num", "marital-status", "relationship", "race", "sex")
NUMBER = VARIABLES.index("education-num")


class _Mixed(ClassifierMixin, BaseEstimator):
    """Naive Bayes with a normal density for education-num and frequencies for all other columns."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> _Mixed:
        self.classes_ = np.unique(y)
        self.frequencies_ = CategoricalNB().fit(np.delete(X, NUMBER, axis=1), y)
        self.density_ = GaussianNB().fit(X[:, [NUMBER]], y)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        joint: Any = self.frequencies_.predict_joint_log_proba(np.delete(X, NUMBER, axis=1))
        joint += self.density_.predict_joint_log_proba(X[:, [NUMBER]])
        joint = joint - np.log(self.density_.class_prior_)  # the prior was counted twice
        odds = np.exp(joint - joint.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)


class _ScoredBernoulliNB(BernoulliNB):
    """Bernoulli naive Bayes whose score is its probability, for Platt scaling as in the paper."""

    def decision_function(self, X: Any) -> np.ndarray:
        return self.predict_proba(X)[:, 1]


def _one_hot(model: Any, **options: Any) -> Any:
    return make_pipeline(OneHotEncoder(sparse_output=False, **options), model)


#: The encoding that comes closest to the published figure.
MODEL = "Bernoulli, a column for each value"
#: Candidate models of naive Bayes; each takes codes of the values (n, 6).
ENCODINGS: dict[str, Callable[[], Any]] = {
    MODEL: lambda: _one_hot(_ScoredBernoulliNB(), handle_unknown="ignore"),
    "Bernoulli, all but the first value": lambda: _one_hot(BernoulliNB(), drop="first"),
    "categorical": CategoricalNB,
    "categorical, education-num normal": _Mixed,
    "multinomial, a column for each value": lambda: _one_hot(MultinomialNB()),
    "multinomial, all but the first value": lambda: _one_hot(MultinomialNB(), drop="first"),
    "Gaussian, codes": GaussianNB,
    "Gaussian, a column for each value": lambda: _one_hot(GaussianNB()),
}
