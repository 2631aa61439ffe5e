"""Regressions of the rows of a source: in memory, on an accelerator or in blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bayescal._core.execution.blas import single_threaded_blas
from bayescal._core.minimization.optimize import Minimum
from bayescal._core.shapes import Float, Shaped
from bayescal.data.rows import Rows, Source
from bayescal.regression.binary.blocks import fit_binary, fit_softmax
from bayescal.regression.binary.fit import fit_single
from bayescal.regression.binary.objective import BinaryDesign, Regression
from bayescal.regression.softmax.fit import fit
from bayescal.regression.softmax.objective import Design

#: Scores whose design is made at once, so that it fits in the processor's cache.
_DESIGN_NUMBERS = 1 << 14


def binary_fit(
    rows: Source,
    make: Callable[[Rows], BinaryDesign[Any]],
    sample: BinaryDesign[Any],
    penalty: Float[np.ndarray, " features"],
) -> Callable[[Shaped[np.ndarray, " 1+features"]], Minimum[np.ndarray]]:
    """Prepare a logistic regression on the designs that ``make`` returns for rows and for a sample.

    The returned function fits the intercept and the coefficients that a mask declares free.
    """
    sampled = sample.columns[1:].T, sample.targets, sample.weights
    if isinstance(rows, Rows):

        def fit_rows(free: Shaped[np.ndarray, " parameters"]) -> Minimum[np.ndarray]:
            return fit_single(Regression(*sampled, 0.0, penalty, free))

        return fit_rows
    designs = rows.designs(make, _DESIGN_NUMBERS)

    def fit_blocks(free: Shaped[np.ndarray, " parameters"]) -> Minimum[np.ndarray]:
        with single_threaded_blas():
            return fit_binary(Regression(*sampled, 0.0, penalty, free), rows.weight, designs)

    return fit_blocks


def softmax_fit(
    rows: Source,
    make: Callable[[Rows], Design[Any]],
    penalty: Float[np.ndarray, " parameters"],
    start: Float[np.ndarray, " parameters"],
) -> Minimum[np.ndarray]:
    """Fit a multinomial regression on the designs that ``make`` returns for rows."""
    if isinstance(rows, Rows):
        return fit(make(rows), penalty, start)
    designs = rows.designs(make, _DESIGN_NUMBERS)
    return fit_softmax(make(rows.sample), penalty, start, rows.weight, designs)
