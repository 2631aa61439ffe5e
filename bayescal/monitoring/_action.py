"""Advice on how to restore calibration, in words."""

from __future__ import annotations

from bayescal.monitoring._evidence import Evidence
from bayescal.monitoring._region import LogOddsHistory, likely_kind


def advise(evidence: Evidence, history: LogOddsHistory | None, row: int, time: object) -> str:
    """Describe what is wrong and what to refit, with rows from about ``row`` on.

    Without a history of log odds, the evidence determines what is wrong.
    """
    since = f"with rows from about {row} on" + ("" if time is None else f" ({time})")
    if history is None:
        kinds = evidence.kind_weights()
        kind, slope, offset = max(kinds, key=lambda name: kinds[name]), None, None
    else:
        kind, slope, offset = likely_kind(history.terms_since(row))
    if kind == "offset":
        number = "" if offset is None else f" (offset {offset:+.2f})"
        return f"the share of outcomes has changed{number}: refit an offset {since}"
    if kind == "slope":
        if slope is None:
            return f"confidence is too high or too low: refit a temperature {since}"
        level = "high" if slope < 1 else "low"
        return f"confidence is too {level} (slope {slope:.2f}): refit a temperature {since}"
    number = "" if slope is None else f" (slope {slope:.2f}, offset {offset:+.2f})"
    return f"confidence and shares have changed{number}: recalibrate {since}, for example by Auto"
