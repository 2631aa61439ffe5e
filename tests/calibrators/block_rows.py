"""Rows in blocks, and a comparison of fits to them with fits to all rows in memory."""

from typing import Any

import numpy as np
from sklearn.base import clone

import bayescal as bc


def cut(rows: Any, size: int | tuple[int, ...], **options: Any) -> bc.Blocks:
    """Split rows into blocks of ``size`` rows, or into blocks that end at the given rows."""
    n = len(rows[0])
    ends = [*range(size, n, size)] if isinstance(size, int) else size
    parts = zip([0, *ends], [*ends, n], strict=True)
    return bc.Blocks([tuple(values[i:j] for values in rows) for i, j in parts], **options)


def agree(
    calibrator: Any, rows: Any, blocks: Any, at: Any = None, atol: float = 1e-9
) -> tuple[Any, Any]:
    """Compare the predictions of both fits at ``at``, by default the rows; return the fits."""
    whole, fitted = clone(calibrator).fit(*rows), clone(calibrator).fit(blocks)
    at = rows[0] if at is None else at
    result, expected = fitted.predict_proba(at), whole.predict_proba(at)
    np.testing.assert_allclose(result, expected, atol=atol, rtol=0)
    return fitted, whole
