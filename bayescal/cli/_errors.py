"""How the command line speaks of errors and warnings: one line on standard error."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from bayescal._core.warnings import AccuracyWarning, SamplingWarning


class CommandError(Exception):
    """Wrong input from the user; the message says what to change."""


def say(message: object, kind: str = "") -> None:
    """Print one line to standard error."""
    prefix = f"bayescal: {kind}: " if kind else "bayescal: "
    print(prefix + " ".join(str(message).split()), file=sys.stderr)


@contextlib.contextmanager
def library_call() -> Iterator[None]:
    """Make the library's input errors errors of the command, and its warnings single lines."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        say(message, "warning")

    with warnings.catch_warnings():
        warnings.simplefilter("always", SamplingWarning)
        warnings.simplefilter("always", AccuracyWarning)
        warnings.showwarning = show
        try:
            yield
        except (TypeError, ValueError) as error:
            raise CommandError(str(error)) from error


def quality(posterior: Any) -> str:
    """Describe how trustworthy the integration is: what the integrator can tell, after commas."""
    facts = [
        ("effective sample size", posterior.ess, "{:,.0f}"),
        ("Pareto k", posterior.pareto_k, "{:.2f}"),
        ("log evidence", posterior.log_evidence, "{:.2f}"),
    ]
    known = [f", {name} {form.format(value)}" for name, value, form in facts if value == value]
    return "".join(known)
