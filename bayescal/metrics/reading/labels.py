"""What arrays stand for that users give to metrics: labels of any kind, and logits."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal, TypeVar

import numpy as np

from bayescal._core.numerics import sigmoid, softmax
from bayescal.data.checks import (
    as_numpy,
    check_choice,
    check_labels,
    check_range,
    check_row_sums,
    check_unmasked,
)
from bayescal.data.fitted import read_shares
from bayescal.data.label_names import (
    Classes,
    as_labels,
    check_classes,
    check_present,
    class_array,
    class_places,
    column_names,
    find_positions,
    has_text,
    in_order,
    is_count,
    label_list,
    of_one_kind,
)

__all__ = ["PLAIN", "Classes", "Inputs", "Outcomes", "Reading", "check_probs", "in_right_order"]

Inputs = Literal["probs", "logits"]
#: Whether each row has one outcome, or a share of each.
Outcomes = Literal["labels", "fractional"]
Checked = TypeVar("Checked")
#: Kinds of labels that are no numbers: texts, objects and dates.
_TEXT = "OSTUM"
_ADVICE = "say classes=(label of each column, ...) for other labels"
_MORE = "give a row of probabilities for each case"


@dataclass(frozen=True)
class Reading:
    """How probabilities and labels are to be read: the options ``classes`` and ``inputs``."""

    classes: Classes = None
    inputs: Inputs = "probs"
    #: Whether all labels are seen at once; else their values are no classes.
    whole: bool = True
    outcomes: Outcomes = "labels"

    def __post_init__(self) -> None:
        check_choice(self.outcomes, "outcomes", ("labels", "fractional"))
        if self.inputs == "scores":
            raise ValueError(
                "inputs must be 'probs' or 'logits', got 'scores', which are no probabilities: "
                "calibrate them first"
            )
        check_choice(self.inputs, "inputs", ("probs", "logits"))

    def labels(self, y: Any, weights: Any = None) -> np.ndarray:
        """Return labels (n,) as numbers or texts, of which none that counts is missing."""
        check_unmasked(y, "y")
        try:
            found = None if hasattr(y, "detach") else as_labels(y)
        except ValueError:  # of which as_numpy says more
            found = None
        if found is None or found.ndim != 1 or found.dtype.kind not in _TEXT:
            found = as_numpy(y, "y")
        if found.ndim != 1:
            return found
        check_present(found, weights)
        if found.dtype == object and not has_text(found):
            found = as_numpy(of_one_kind(found), "y")
        return found

    def codes(self, y: np.ndarray, k: int) -> tuple[Any, np.ndarray]:
        """Return the classes (k,), and labels (n,) as their places among them."""
        given = None if self.classes is None else class_array(self.classes)
        if y.dtype.kind not in _TEXT:
            if given is None or is_count(given) or given.dtype.kind in _TEXT:
                known = None if given is None else check_classes(_NONE, given, k, _MORE)
                codes = self._numbers(y, k)
                return self._named(y, k) if known is None else known, codes
        else:
            y = self.texts(y)
            numbers = range(k) if given is None and not self.whole else given
            if numbers is not None and np.asarray(numbers).dtype.kind not in _TEXT:
                wanted = np.asarray(numbers).tolist()
                kind = "date" if y.dtype.kind == "M" else "text"
                raise ValueError(
                    f"y must be in {wanted}, got the {kind} {label_list(y)[0]!r}; {_ADVICE}"
                )
        found, place = np.unique(y, return_inverse=True)
        classes = check_classes(found, self.classes, k, _MORE)
        return classes, find_positions(found, classes)[place]

    def shares(self, y: Any, n: int, k: int) -> np.ndarray | None:
        """Return shares of outcomes (n, k) where y holds them, and not labels."""
        fractional = self.outcomes == "fractional"
        if np.ndim(y) == 2 and (fractional or np.shape(y)[1] > 1):
            shares = read_shares(y, n, k)
        elif fractional and k == 2:
            second = check_range(as_numpy(y, "y").astype(np.float64), "y", "pass shares of class 1")
            shares = read_shares(np.stack([1 - second, second], axis=-1), n, 2)
        elif fractional:
            raise ValueError(
                f"y must have shape ({n}, {k}) for outcomes='fractional', got {np.shape(y)}"
            )
        else:
            return None
        if np.ndim(y) == 2:
            classes = range(k) if self.classes is None else class_array(self.classes)
            shares = in_order(shares, column_names(y), classes, "y")
        if not fractional and not ((shares == 0) | (shares == 1)).all():
            raise ValueError(
                "y must hold labels, or a 1 in one column of each row, got shares of outcomes; say "
                "outcomes='fractional', which log_loss, brier_score and ece have"
            )
        return shares

    def classes_of_shares(self, y: Any, k: int) -> Any:
        """Return the classes (k,) of shares: those given, or names of columns, or 0, ..., k - 1."""
        if self.classes is not None:
            return check_classes(_NONE, class_array(self.classes), k)
        names = column_names(y) if np.ndim(y) == 2 else None
        return range(k) if names is None or class_places(names, range(k), "y") else names

    def any_labels(self, probs: Any) -> np.ndarray:
        """Return some labels (n,) of probabilities that have none."""
        n = sum(as_numpy(probs, "probs").shape[:1])
        return np.repeat(0 if self.classes is None else np.ravel(class_array(self.classes))[:1], n)

    def is_text(self, y: Any, weights: Any = None) -> bool:
        """Return whether labels are no numbers."""
        return self.labels(y, weights).dtype.kind in _TEXT

    def texts(self, y: np.ndarray) -> np.ndarray:
        """Return labels that are texts as an array of these."""
        if y.dtype.kind not in _TEXT:
            raise TypeError(f"y must hold labels of one kind, got text and {y.dtype}")
        return np.array(y.tolist(), str) if y.dtype.kind == "T" else of_one_kind(y)

    def _numbers(self, y: np.ndarray, k: int) -> np.ndarray:
        pair = self.whole and self.classes is None and k == 2
        advice = _ADVICE
        if y.dtype.kind == "f" and y.min(initial=0) >= 0 and y.max(initial=0) <= 1:
            advice = "for shares of outcomes say outcomes='fractional'"
        if k == 2 and self.classes is None and y.min(initial=0) == -1:
            advice = "say classes=(-1, 1) for labels -1 and 1"
        try:
            return check_labels(y, k, "y", advice)
        except ValueError:
            # No codes can be meant; calibrators sort these, too.
            if pair and np.array_equal(np.unique(y), [-1, 1]):
                return (y > 0).astype(np.int64)
            raise

    def _named(self, y: np.ndarray, k: int) -> Any:
        """Return the classes (k,) of numbers, as columns may be named."""
        return np.array([-1, 1]) if k == 2 and y.min(initial=0) < 0 else range(k)

    def probs(self, given: Any, many: bool = False) -> Any:
        """Return probabilities, of each number if they are of many labels, of float64 (n[, k])."""
        if self.inputs == "probs":
            return given
        return softmax(given) if given.ndim == 2 and not many else sigmoid(given)


def check_probs(probs: np.ndarray, eps: float, name: str = "probs") -> np.ndarray:
    """Check probabilities (n,) or (n, k), whose rows may miss one by a multiple of ``eps``."""
    clipped = check_range(probs, name)
    if probs.ndim == 2:
        check_row_sums(probs, name, eps=eps)
    return clipped


PLAIN = Reading()
_NONE = np.empty(0, np.int64)


def in_right_order(check: Callable[..., Checked]) -> Callable[..., Checked]:
    """Let a function of probabilities and labels say so where the two are exchanged."""

    @wraps(check)
    def checked(probs: Any, y: Any, *rest: Any, **options: Any) -> Checked:
        try:
            return check(probs, y, *rest, **options)
        except (TypeError, ValueError) as error:
            if _exchanged(probs, y):
                raise ValueError(
                    f"probs must come first, then y: {_right_call()}; got labels, then "
                    "probabilities, which is the order of scikit-learn"
                ) from error
            raise

    return checked


def _exchanged(first: Any, second: Any) -> bool:
    """Return whether these are clearly labels, and probabilities of as many cases."""
    try:
        labels = PLAIN.labels(first)
        probs = as_numpy(second, "y")
    except (TypeError, ValueError):
        return False
    if not probs.size or labels.shape[:1] != probs.shape[:1] or labels.ndim > probs.ndim:
        return False
    classes = probs.shape[1] if labels.ndim < probs.ndim == 2 else 2
    certain = labels.dtype.kind in _TEXT or np.isin(labels, np.arange(classes)).all()
    return bool(
        certain and ((probs >= 0) & (probs <= 1)).all() and (probs != np.floor(probs)).any()
    )


def _right_call() -> str:
    """Return how the package's function that was called is called."""
    frame, called = sys._getframe(1), None
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("bayescal."):
        if frame.f_code.co_name != "ignored":  # of a function that ignores underflow
            called = frame.f_code
        frame = frame.f_back
    if called is None or called.co_name.startswith(("_", "<")):
        return "(y_prob, y_true)"  # of blocks, which are read elsewhere
    names = [n for n in called.co_varnames[: called.co_argcount] if n not in ("self", "cls")]
    if called.co_flags & inspect.CO_VARARGS:
        names.append("y")  # after what may be a classifier
    names = [{"probs": "y_prob", "y": "y_true"}.get(name, name) for name in names]
    return f"{called.co_name}({', '.join(names)})"
