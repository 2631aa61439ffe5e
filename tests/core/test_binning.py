"""Bins of equal width: borders, neighbors of borders, and dtypes of scores."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from bayescal import metrics
from bayescal._core.binning import equal_width_cell
from bayescal._core.execution.precision import float64

KINDS = [np.float64, np.float32]
NARROW = [np.float32, np.float16, jnp.bfloat16]


def eps_of(kind: type) -> float:
    return float(jnp.finfo(kind).eps)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("xp", [np, jnp])
def test_borders_and_their_neighbors_lie_on_the_border(kind: type, xp: Any) -> None:
    for bins in range(1, 400) if xp is np else (100,):
        k = np.arange(1, bins + 1)
        border = (k / bins).astype(kind)
        for p in (border, np.nextafter(border, kind(0)), np.nextafter(border, kind(1))):
            with float64():
                scores = xp.asarray(p.astype(float) if xp is np else p)
                cell = equal_width_cell(scores, bins, xp, eps_of(kind))
            assert np.array_equal(cell, k - 1), bins


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_farther_than_rounding_from_a_border_lies_beside_it(kind: type) -> None:
    eps = max(2.0**-49, eps_of(kind))
    for bins in range(2, 400):
        k = np.arange(1, bins)
        for move, cell in ((-3 * eps, k - 1), (3 * eps, k)):
            p = (k / bins + move).astype(kind).astype(float)
            assert np.array_equal(equal_width_cell(p, bins, np, eps), cell), bins


@pytest.mark.parametrize("bins", [25, 29, 35, 50, 100])
def test_a_bin_does_not_depend_on_other_rows(bins: int) -> None:
    p = np.unique(np.r_[np.arange(bins + 1) / bins, np.random.default_rng(0).random(100)])
    together = equal_width_cell(p, bins, np)
    alone = [int(equal_width_cell(p[[i]], bins, np)[0]) for i in range(len(p))]
    assert together.tolist() == alone


def test_bins_narrower_than_the_precision_are_those_of_the_nearest_border() -> None:
    p = (np.arange(1, 401) / 400).astype(jnp.bfloat16).astype(float)
    cell = equal_width_cell(p, 400, np, eps_of(jnp.bfloat16))
    assert np.abs((cell + 1) / 400 - p).max() <= 0.5 / 400 + 1e-12


def test_tenths_of_all_types_have_the_same_errors() -> None:
    rng = np.random.default_rng(0)
    p, y = rng.integers(0, 11, 2000) / 10, rng.integers(0, 2, 2000)
    rows = np.stack([1 - p, p], axis=1)
    names = ("ece", "debiased_ece", "canonical_ece", "multilabel_ece")
    for bins in (5, 10, 15, 20):
        for name in names:
            many = name == "multilabel_ece"
            labels = np.stack([1 - y, y], axis=1) if many else y
            how = {"bins": bins} | ({} if name == "canonical_ece" else {"binning": "equal_width"})
            function = getattr(metrics, name)
            for given in (rows,) if many else (p, rows):
                exact = function(given, labels, **how)
                for kind in NARROW:
                    moved = function(given.astype(kind), labels, **how)
                    assert moved == pytest.approx(exact, abs=8 * eps_of(kind)), (name, kind)


def test_float_dust_in_double_precision() -> None:
    p, y = np.array([0.1 + 0.2, 0.3, 1 - 0.7]), [1, 0, 0]
    assert metrics.reliability_curve(p, y, bins=10).weight.tolist() == [3]
