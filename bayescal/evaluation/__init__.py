"""Evaluation of the probabilities of one or several models: numbers, verdicts and an HTML page.

:func:`evaluate` returns a result that prints as a table, converts to JSON-ready numbers, and writes
one self-contained page with figures.
"""

from bayescal.evaluation._evaluate import Evaluation, evaluate
from bayescal.evaluation._findings import Finding

__all__ = ["Evaluation", "Finding", "evaluate"]
