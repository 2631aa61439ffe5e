"""User code for a type checker: tests/test_typing.py checks this file."""

from typing import assert_type

import numpy as np
from sklearn.naive_bayes import GaussianNB

import bayescal as bc

scores = np.array([0.1, 0.3, 0.6, 0.9])
labels = np.array([0, 1, 0, 1])

assert_type(bc.metrics.log_loss(scores, labels), float)
assert_type(bc.Beta(parameters=2).fit(scores, labels), bc.Beta)
assert_type(bc.Beta().fit(scores, labels).as_function(), bc.PredictFunction)
assert_type(
    bc.CalibratedClassifier(GaussianNB(), cv=3).fit(scores[:, None], labels),
    bc.CalibratedClassifier,
)
assert_type(bc.evaluate({"raw": scores}, labels), bc.Evaluation)
assert_type(bc.GaussianPrior(0.0, 1.0, 1.0), bc.Prior)
assert_type(bc.posterior(bc.GaussianPrior(0.0, 1.0, 1.0), (scores, labels)), bc.Posterior)
