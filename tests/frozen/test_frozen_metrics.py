"""Metrics and predictions of generative models equal the recorded ones.

A file separate from the calibrators' lets a parallel run compute both at once.
"""

from tests.frozen import functions, metrics, posteriors
from tests.frozen.case import Case
from tests.frozen.cases import check, each


@each([*metrics.cases(), *functions.cases(), *posteriors.cases()])
def test_numbers_are_the_recorded_ones(case: Case) -> None:
    check(case)
