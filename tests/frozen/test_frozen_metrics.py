"""Metrics and predictions of generative models are the recorded ones.

They are apart from calibrators, so that a parallel run computes both at once.
"""

from tests.frozen import functions, metrics, posteriors
from tests.frozen.case import Case
from tests.frozen.cases import check, each


@each([*metrics.cases(), *functions.cases(), *posteriors.cases()])
def test_numbers_are_the_recorded_ones(case: Case) -> None:
    check(case)
