"""Studies on real data that compare methods with each other and with published figures.

Each can be killed and started again: it goes on from what it finished.
"""

from bayescal.study import adult, real

__all__ = ["adult", "real"]
