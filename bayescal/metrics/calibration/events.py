"""What a calibration error is about: events, and the probabilities that they were given."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Literal, NamedTuple

from bayescal._core.arrays import Array
from bayescal.data.checks import check_choice, check_count
from bayescal.data.predictions import Predictions, as_rows, largest, of_class

Kind = Literal["binary", "confidence", "classwise", "top_label", "top_k_confidence", "top_k_label"]
KINDS = "binary", "confidence", "classwise", "top_label", "top_k_confidence", "top_k_label"
#: Of one event for each case.
SINGLE = "binary", "confidence"
_BY_LABEL = "top_label", "top_k_label"


class Events(NamedTuple):
    """Events of each case, in parts of which at most one happens.

    Parts are the classes, or the ranks of the predicted probabilities; "binary" and "confidence"
    have one. Events of different parts, or of different labels, are never put in one bin.
    """

    #: Probabilities of the events, (n,) or (n, parts).
    predicted: Any
    #: The predicted class of each, for kinds that look at each predicted class apart.
    label: Array | None
    #: Whether one of a case's events happened, (n,).
    happened: Array
    #: The part in which it did, (n,); anything where none did.
    which: Array


def resolve_kind(
    kind: str | None, k: int | None, columns: int | None, kinds: tuple[str, ...] = KINDS
) -> tuple[str, int]:
    """Return the kind of events, by default that which fits the shape, and the number of ranks.

    ``columns`` is the number of columns of the probabilities, None for shape (n,).
    """
    if kind is None:
        kind = "binary" if columns is None else "confidence"
    check_choice(kind, "kind", kinds)
    if kind == "binary" and columns not in (None, 2):
        raise ValueError(f"kind must be 'confidence' for {columns} classes, got 'binary'")
    if not kind.startswith("top_k"):
        if k is not None:
            raise ValueError(f"k must be left out for kind {kind!r}, got {k}")
        return kind, 1
    classes = columns or 2
    ranks = min(5, classes) if k is None else check_count(k, "k")
    if ranks > classes:
        raise ValueError(f"k must be at most the number of classes, {classes}, got {ranks}")
    return kind, ranks


def number_of_groups(kind: str, ranks: int, columns: int | None) -> tuple[int, int]:
    """Return the numbers of parts and of labels."""
    classes = columns or 2
    parts = classes if kind == "classwise" else ranks
    return parts, classes if kind in _BY_LABEL else 1


def find_events(data: Predictions, kind: str, ranks: int, xp: ModuleType) -> Events:
    """Return the events of a kind; ``xp`` is NumPy or jax.numpy."""
    probs, y = data.probs, data.y
    if kind == "binary":
        predicted = probs if probs.ndim == 1 else probs[:, 1]
        return Events(predicted, None, y == 1, y)
    probs = as_rows(probs, xp)
    if kind == "classwise":
        return Events(probs, None, xp.ones(y.shape, bool), y)
    if ranks == 1:
        confidence, label = largest(probs, xp)
        by_label = label if kind in _BY_LABEL else None
        return Events(confidence, by_label, label == y, y)
    order = xp.argsort(-probs, axis=1, stable=True)[:, :ranks]
    hit = order == y[:, None]
    predicted = xp.take_along_axis(probs, order, axis=1)
    by_label = order if kind in _BY_LABEL else None
    return Events(predicted, by_label, hit.any(axis=1), hit.argmax(axis=1))


def at_hit(events: Events, values: Array, xp: ModuleType) -> Array:
    """Return what stands in ``values`` (n,) or (n, parts) at the part that happened."""
    return values if values.ndim == 1 else of_class(values, events.which, xp)
