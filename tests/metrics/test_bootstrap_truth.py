"""What the bootstrap says of differences and of bias, against the normal law and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bayescal import metrics

REPLICATES = 20_000


@pytest.mark.parametrize("z", [0.5, 1.0, -1.5])
def test_p_values_are_two_sided(z: float) -> None:
    """Two models whose Brier scores differ by z standard errors: twice the normal tail.

    The differences are symmetric about their mean, so that the bootstrap's law is normal but for
    terms of the order 1 / n.
    """
    n = 2000
    spread = np.repeat([-1.0, 1.0], n // 2) * np.tile(np.linspace(0.1, 1, n // 2), 2)
    gaps = 0.1 * (spread + z * spread.std() / np.sqrt(n))
    # With the label 0 a score is the square of the probability.
    second = np.full(n, 0.5)
    first = np.sqrt(0.25 + gaps)
    y = np.zeros(n, int)
    found = metrics.difference("brier_score", first, second, y, replicates=REPLICATES)
    score = metrics.brier_score(first, y) - metrics.brier_score(second, y)
    assert found.value == pytest.approx(score, rel=1e-9)
    assert score / found.standard_error == pytest.approx(z, rel=5 / np.sqrt(2 * REPLICATES))
    tail = stats.norm.sf(abs(z))
    error = 2 * np.sqrt(tail * (1 - tail) / REPLICATES)
    # The tail is counted about the mean of the replicates, which errs as well.
    error += 2 * stats.norm.pdf(z) * np.sqrt(2 / REPLICATES)
    assert found.p_value == pytest.approx(2 * tail, abs=4 * error)


def test_an_interval_lies_about_the_value_less_its_bias() -> None:
    """The root mean square of gaps in bins, whose bias has a closed form.

    With n_b cases in bin b and shares q_b of ones the mean square has the bias
    sum_b q_b (1 - q_b) / n, and its root that over twice the root, to the order 1 / n. The
    bootstrap's cases have the same again, about the value.
    """
    n, bins = 2000, 10
    centres = (np.arange(bins) + 0.5) / bins
    shares = np.where(centres < 0.5, centres + 0.2, centres - 0.2)
    size = n // bins
    p = np.repeat(centres, size)
    y = np.concatenate([np.arange(size) < round(q * size) for q in shares]).astype(int)
    value = np.sqrt(np.mean((centres - shares) ** 2))
    bias = np.sum(shares * (1 - shares)) / n / (2 * value)
    found = metrics.interval("ece", p, y, bins=bins, norm=2, level=0.5, replicates=REPLICATES)
    assert found.value == pytest.approx(value, rel=1e-9)
    middle = (found.lower + found.upper) / 2
    # Of a middle of quartiles, 1.11 standard deviations over the root of the number; the mean rise
    # counts twice.
    error = found.standard_error * np.sqrt((1.11**2 + 4) / REPLICATES)
    assert bias > 8 * error
    assert middle == pytest.approx(value - bias, abs=4 * error)
