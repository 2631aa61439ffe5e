"""Studies that compare methods with each other and with published figures.

On real data, and where the truth is known. Each can be killed and started again: it goes on from
what it finished.
"""

from bayescal.study import adult, cnn, draws, factors, multilabel, real, simplex, synthetic

__all__ = ["adult", "cnn", "draws", "factors", "multilabel", "real", "simplex", "synthetic"]
