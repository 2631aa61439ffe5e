"""Read predictions in memory: probabilities or logits, with labels and weights."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from bayescal._core.arrays import AnyArray, Array, ArrayLike, UserData, XArray, accelerated
from bayescal._core.execution.precision import float64
from bayescal._core.lazy import is_traced, jnp
from bayescal._core.numerics import sigmoid, softmax
from bayescal.data.checks import (
    as_numpy,
    check_choice,
    check_finite,
    check_logits,
    check_range,
    precision,
)
from bayescal.data.fitted import of_pairs, read_label_rows
from bayescal.data.label_names import (
    Classes,
    check_classes,
    class_array,
    column_names,
    in_order,
    match_columns,
    matched_names,
)
from bayescal.data.labels import (
    class_codes,
    classes_of_shares,
    is_text,
    label_values,
    outcome_shares,
)
from bayescal.data.scores import check_probabilities, plausible
from bayescal.data.weights import are_counts, check_weights, check_weights_of, weighted_rows

#: Distance from 0 and 1 at which logarithms clip probabilities of any type.
EPS = 2.0**-52
#: Up to this many columns, finding the largest column by column is faster than row by row.
_MAX_COLUMNS = 64

Inputs = Literal["probs", "logits"]
#: Whether each row has one label or a proportion of each outcome.
Outcomes = Literal["labels", "fractional"]
ArrayT = TypeVar("ArrayT", bound=Array)
Checked = TypeVar("Checked")


@dataclass(frozen=True)
class Reading:
    """Options for reading predictions; the first three are those of every metric."""

    classes: Classes = None
    inputs: Inputs = "probs"
    outcomes: Outcomes = "labels"
    #: Whether rows have any number of labels, which come in one column each.
    multilabel: bool = False
    #: Whether two columns are read as P(second class), so that both shapes have equal metrics.
    second: bool = True
    #: Whether log odds (n,) become two columns: one probability does not show how near one it is.
    both: bool = False
    #: Whether these are all rows. A batch may be empty, lack a class or have only zero weights.
    whole: bool = True
    #: Whether the caller has an argument ``inputs``, which errors suggest.
    has_inputs: bool = True

    def __post_init__(self) -> None:
        check_choice(self.outcomes, "outcomes", ("labels", "fractional"))
        if self.inputs == "scores":
            raise ValueError(
                "inputs must be 'probs' or 'logits', got 'scores', which are no probabilities: "
                "calibrate them first"
            )
        check_choice(self.inputs, "inputs", ("probs", "logits"))

    def probs(self, given: UserData) -> AnyArray:
        """Compute probabilities (n,) or (n, k) from the inputs."""
        if self.inputs == "probs":
            return given
        return softmax(given) if given.ndim == 2 and not self.multilabel else sigmoid(given)

    def any_labels(self, probs: AnyArray) -> np.ndarray:
        """Make labels (n,) for probabilities that have none."""
        n = sum(as_numpy(probs, "probs").shape[:1])
        return np.repeat(0 if self.classes is None else np.ravel(class_array(self.classes))[:1], n)


PLAIN = Reading()


class Predictions(NamedTuple):
    """Checked predictions for n rows of positive weight."""

    #: P(y = 1) (n,), or a probability for each class or label (n, k); float64.
    probs: AnyArray
    #: Positions among the classes (n,), or 0 and 1 for each of many labels (n, l).
    y: AnyArray
    #: Weights (n,), float64; ones if the user gave none.
    weights: AnyArray
    #: Distance from 0 and 1 at which logarithms clip probabilities.
    eps: float
    #: Classes among which ``y`` are positions, if known.
    classes: Sequence[object] | np.ndarray | None = None
    #: Machine epsilon of the type in which the user gave the probabilities.
    precision: AnyArray = EPS
    #: Excess (n,) of the Brier score over that of fractional outcomes, if these were given.
    excess: np.ndarray | None = None
    #: Index (n,) of the cluster of each row; None if rows are independent.
    clusters: np.ndarray | None = None
    #: P(y = 0) (n,), if it was given beside P(y = 1), which may be rounded to one.
    first: AnyArray = None

    def part(self, rows: slice | np.ndarray) -> Predictions:
        """Select some rows."""
        return self._replace(
            probs=self.probs[rows],
            y=self.y[rows],
            weights=self.weights[rows],
            classes=None,
            clusters=None if self.clusters is None else self.clusters[rows],
            first=None if self.first is None else self.first[rows],
        )

    def unrounded(self) -> np.ndarray:
        """Return probabilities that are one only where that of the other class, if given, is zero.

        In single precision, 1e-9 and 1.0 are two probabilities neither of which is certain.
        """
        probs = np.asarray(self.probs, float)
        if self.first is None or not (probs == 1).any():
            return probs
        below = np.minimum(1 - np.asarray(self.first, float), np.nextafter(1.0, 0.0))
        return np.where((probs == 1) & (self.first > 0), below, probs)

    @property
    def columns(self) -> int | None:
        """Number of columns; None if there is one probability for each row."""
        return None if self.probs.ndim == 1 else self.probs.shape[1]

    @property
    def whole(self) -> bool:
        """Whether weights are integers small enough to be counted, hence counts."""
        return bool(are_counts(self.weights))


def in_right_order(read: Callable[..., Checked]) -> Callable[..., Checked]:
    """Make a function of probabilities and labels explain exchanged and traced arguments."""

    @wraps(read)
    def checked(probs: XArray, y: XArray, *rest: object, **options: object) -> Checked:
        try:
            return read(probs, y, *rest, **options)
        except (TypeError, ValueError) as error:
            if is_traced(probs) or is_traced(y):
                raise TypeError(
                    "probs and y must be arrays with known values, got one that JAX traces: call "
                    "metrics outside of jax.jit, vmap and grad; bayescal.losses work inside"
                ) from error
            if are_exchanged(probs, y):
                raise ValueError(
                    f"probs must come first, then y: {_right_call()}; got labels, then "
                    "probabilities, which is the order of scikit-learn"
                ) from error
            raise

    return checked


@in_right_order
def read_arrays(
    probs: ArrayLike,
    y: ArrayLike,
    weights: ArrayLike | None = None,
    reading: Reading = PLAIN,
    *,
    names: list[object] | None = None,
    on_device: bool = False,
) -> Predictions:
    """Read predictions from arrays, without the rows of weight zero.

    Columns of a data frame that are named like the classes may have any order; ``names`` are those
    of columns that have none themselves. With ``on_device``, valid probabilities on an accelerator
    stay there, with the rows of weight zero.
    """
    if on_device and (data := _read_on_device(probs, y, weights, reading)) is not None:
        return data
    if reading.multilabel:
        return _read_multilabel(probs, y, weights, reading, names)
    names = column_names(probs) or names
    array, given = as_numpy(probs, "probs"), y
    if array.ndim not in (1, 2):
        more = "; bayescal.tokens converts logits of tokens to rows" if array.ndim > 2 else ""
        raise ValueError(f"probs must have shape (n,) or (n, k), got {array.shape}{more}")
    if array.ndim == 2 and array.shape[1] < 2:
        raise ValueError(
            f"probs must have a column for each class, got shape {array.shape}; "
            "for two classes pass P(y = 1) with shape (n,), such as probs[:, 0]"
        )
    n, k = len(array), 2 if array.ndim == 1 else array.shape[1]
    if reading.whole and n == 0:
        raise ValueError("probs must not be empty")
    if array.ndim == 2 and n != k and np.shape(given) == (k,):
        raise ValueError(
            f"y must have shape ({n},) to match probs, got ({k},); pass probs.T if rows are "
            "classes, and for several models a mapping from names to arrays, where it is accepted"
        )
    shares = outcome_shares(given, n, k, reading.classes, reading.outcomes == "fractional")
    labels = shares
    if labels is None:
        labels = label_values(given, n, weights=weights)
    eps = precision(array.dtype)
    array, labels, rows_weights = weighted_rows(array, labels, weights, reading.whole)
    if shares is None:
        classes, codes = class_codes(labels, k, reading.classes, reading.whole)
    else:
        classes, codes = classes_of_shares(given, k, reading.classes), labels.argmax(axis=1)
    array = _as_probs(in_order(array, names, classes), reading)
    accepted = ("probs", "logits") if reading.has_inputs else ("probs",)
    array = check_probabilities(array, "probs", eps, accepted)
    first = None
    if reading.second and k == 2 and array.ndim == 2:
        first, array = array[:, 0], np.ascontiguousarray(array[:, 1])
    data = Predictions(array, codes, rows_weights, EPS, classes, eps, first=first)
    return data if reading.outcomes == "labels" else _by_outcome(data, labels)


def _read_multilabel(
    probs: AnyArray, y: ArrayLike, weights: UserData, reading: Reading, names: list[object] | None
) -> Predictions:
    """Read probabilities (n, l) of labels (n, l), any number of which a row may have.

    Columns of two data frames are matched by their names if these agree, or by the classes.
    """
    label_names, names = column_names(y), column_names(probs) or names
    array = as_numpy(of_pairs(probs), "probs")
    if array.ndim != 2:
        raise ValueError(f"probs must have shape (n, labels), got {array.shape}")
    if reading.whole and array.size == 0:
        raise ValueError("probs must not be empty")
    labels = read_label_rows(y, weights=weights)
    if labels.shape != array.shape:
        raise ValueError(f"y must have shape {array.shape} to match probs, got {labels.shape}")
    if reading.classes is not None:
        classes = check_classes(np.empty(0, int), reading.classes, array.shape[1])
        array, labels = in_order(array, names, classes), in_order(labels, label_names, classes, "y")
    else:
        names = matched_names(probs, label_names) if hasattr(probs, "columns") else names
        array = in_order(array, names, label_names or range(array.shape[1]))
    eps = precision(array.dtype)
    array, labels, rows_weights = weighted_rows(array, labels, weights, reading.whole)
    advice = "pass probabilities, not logits or scores"
    if reading.has_inputs:
        advice = "pass inputs='logits' for logits or log odds"
    array = check_range(_as_probs(array, reading), "probs", advice)
    return Predictions(array, labels, rows_weights, EPS, None, eps)


def _read_on_device(
    probs: object, y: UserData, weights: UserData, reading: Reading
) -> Predictions | None:
    """Read valid predictions that are on an accelerator; None if the host has to read them."""
    array = accelerated(probs)
    if array is None or reading.multilabel or reading.outcomes != "labels" or reading.both:
        return None
    if 1 in array.shape[1:] or np.shape(y) != array.shape[:1]:
        return None
    with float64():
        if not plausible(array, reading.inputs):
            return None
        k = 2 if array.ndim == 1 else array.shape[1]
        codes = class_codes(label_values(y, len(array)), k, reading.classes, reading.whole)[1]
        options: Any = {"n": len(codes), "name": "weights", "match": "probs"}
        if weights is None or reading.whole:
            weights = check_weights(weights, **options)
        else:
            weights = check_weights_of(weights, **options)
        device_probs = jnp.clip(reading.probs(array.astype(float)), 0.0, 1.0)
        first, eps = None, precision(array.dtype)
        if reading.second and device_probs.ndim == 2 and k == 2:
            first, device_probs = device_probs[:, 0], device_probs[:, 1]
        codes, weights = jnp.asarray(codes), jnp.asarray(weights)
        return Predictions(device_probs, codes, weights, EPS, None, eps, first=first)


def _as_probs(given: np.ndarray, reading: Reading) -> np.ndarray:
    """Check logits and compute their probabilities; probabilities are not checked."""
    if reading.both and given.ndim == 1:
        given = np.stack([np.zeros_like(given), given], axis=1)
    if reading.inputs != "probs":
        (check_logits if given.ndim == 2 and not reading.multilabel else check_finite)(
            given, "probs"
        )
    return reading.probs(given)


def _by_outcome(data: Predictions, shares: np.ndarray) -> Predictions:
    """Expand proportions (n, k): one row for each outcome, weighted by its proportion."""
    row, codes = np.nonzero(shares)
    spread = 1 - (shares**2).sum(axis=1)
    excess = (spread / 2 if data.probs.ndim == 1 else spread)[row]
    weights = data.weights[row] * shares[row, codes]
    rows = data.part(row)
    return rows._replace(y=codes, weights=weights, classes=data.classes, excess=excess)


def read_truth(
    truth: ArrayLike,
    probs: np.ndarray,
    weights: ArrayLike | None,
    classes: Sequence[object] | np.ndarray,
    name: str = "true_probs",
    given: object = None,
) -> np.ndarray:
    """Read probabilities to compare with ``probs``, without the rows of weight zero.

    Columns that have the names of those of ``given``, from which ``probs`` were read, but not those
    of the classes, are put in its order.
    """
    names, known, array = column_names(truth), column_names(given), as_numpy(truth, name)
    alike = {*(names or ())} | {*(known or ())}
    if (
        names
        and known
        and len(alike) == len(names) == len(known) > 1
        and match_columns(known, classes) is None
    ):
        array = array[:, [names.index(column) for column in known]]
    else:
        array = in_order(array, names, classes, name)
    if weights is not None and array.shape[:1] == np.shape(weights):
        array = array[as_numpy(weights, "weights") > 0]
    pair = probs.ndim == 1 and array.shape == (len(probs), 2)
    if array.shape != probs.shape and not pair:
        raise ValueError(f"{name} must have shape {probs.shape}, got {array.shape}")
    eps = precision(array.dtype)
    checked = check_probabilities(array.astype(np.float64), name, eps, inputs=("probs",))
    return checked[:, 1] if pair else checked


def as_given(probs: np.ndarray, precision: float) -> np.ndarray:
    """Convert probabilities to the floating type of this machine epsilon, to find their bins."""
    if precision == 2.0**-7:
        return probs.astype(jnp.bfloat16)
    kinds = (np.float32, np.float16)
    narrow = next((k for k in kinds if precision == np.finfo(k).eps), np.float64)
    return probs.astype(narrow, copy=False)


def as_rows(probs: ArrayT, xp: ModuleType = np) -> ArrayT:
    """Convert probabilities of class 1 (n,) to those of both classes (n, 2)."""
    return probs if probs.ndim == 2 else xp.stack([1 - probs, probs], axis=1)


def largest(probs: Array, xp: ModuleType) -> tuple[Array, Array]:
    """Find the largest probability of each row, and the lowest class that has it."""
    if xp is not np or probs.shape[1] > _MAX_COLUMNS:
        label = probs.argmax(axis=1)
        return xp.take_along_axis(probs, label[:, None], axis=1)[:, 0], label
    columns = np.ascontiguousarray(probs.T)
    best, label = columns[0].copy(), np.zeros(len(probs), np.uint8)
    for j, column in enumerate(columns[1:], 1):
        above = (column > best).view(np.uint8)
        np.maximum(label, above * np.uint8(j), out=label)
        np.maximum(best, column, out=best)
    return best, label.astype(np.intp)


def of_class(probs: Array, y: Array, xp: ModuleType) -> Array:
    """Select the probability (n,) of one class in each row."""
    if xp is np:
        return probs[np.arange(len(y)), y]
    return xp.take_along_axis(probs, y[:, None], axis=1)[:, 0]


def are_exchanged(first: UserData, second: UserData) -> bool:
    """Return whether the arguments are clearly labels and then probabilities of as many rows."""
    try:
        labels = label_values(first, None) if np.ndim(first) == 1 else as_numpy(first, "y")
        probs = as_numpy(second, "y")
    except (TypeError, ValueError):
        return False
    if not probs.size or labels.shape[:1] != probs.shape[:1] or labels.ndim > probs.ndim:
        return False
    classes = probs.shape[1] if labels.ndim < probs.ndim == 2 else 2
    certain = is_text(labels) or np.isin(labels, np.arange(classes)).all()
    return bool(
        certain and ((probs >= 0) & (probs <= 1)).all() and (probs != np.floor(probs)).any()
    )


def _right_call() -> str:
    """Describe how to call the public function that was called."""
    frame = outermost = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("bayescal."):
        if frame.f_code.co_name not in ("ignored", "renamed"):  # decorators
            outermost = frame
        frame = frame.f_back
    called = outermost.f_code
    # Worker threads, which read blocks, begin with a function of this layer or a private one.
    inside = str(outermost.f_globals["__name__"]).startswith("bayescal.data.")
    if inside or called.co_name.startswith(("_", "<")):
        return "(y_prob, y_true)"
    names = [n for n in called.co_varnames[: called.co_argcount] if n not in ("self", "cls")]
    if called.co_flags & inspect.CO_VARARGS:
        names.append("y")  # the data that follow a classifier or its predictions
    names = [{"probs": "y_prob", "y": "y_true"}.get(name, name) for name in names]
    return f"{called.co_name}({', '.join(names)})"
