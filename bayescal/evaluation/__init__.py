"""How good the probabilities of one model or several are: numbers, verdicts and an HTML page.

:func:`evaluate` measures; the result prints as a table, gives JSON-ready numbers, and writes one
self-contained page with figures.
"""

from bayescal.evaluation._evaluate import Evaluation, evaluate
from bayescal.evaluation._findings import Finding

__all__ = ["Evaluation", "Finding", "evaluate"]
