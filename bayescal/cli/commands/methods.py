"""``bayescal methods``: list the calibrators, without NumPy, which takes longer to import."""

from __future__ import annotations

from bayescal.calibrators.catalog import METHODS, MODULES, summary
from bayescal.cli._errors import show


def list_methods() -> None:
    """List the calibrators that fit --method accepts."""
    width = max(map(len, METHODS))
    for name in METHODS:
        kind = "two classes" if MODULES[name].startswith("binary.") else "any classes"
        show(f"{name:{width}}  {kind}  {summary(name)}")
