"""Methods that accept and return arrays of any library under ``array_api_dispatch``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary

import array_api_compat
import numpy as np
import sklearn
from sklearn.base import clone

from bayescal._core.arrays import (
    AnyArray,
    AnyModel,
    Namespace,
    UserData,
    XArray,
    accelerated,
    device,
    namespace,
    on_host,
    to_host,
)
from bayescal._core.lazy import is_traced
from bayescal.calibrators.base.function import PredictFunction
from bayescal.data.blocks.stream import Blocks
from bayescal.data.predictions import are_exchanged
from bayescal.data.scores import plausible

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

#: Methods whose first argument is an array of scores or features.
_FITS = ("fit", "partial_fit")
_METHODS = (
    *_FITS,
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "predict_interval",
)
#: Attributes that may hold strings or objects, for which only NumPy has arrays.
_NAMES = ("classes_", "feature_names_in_", "label_names_")
_functions: WeakKeyDictionary[object, PredictFunction] = WeakKeyDictionary()

Method = TypeVar("Method", bound=Callable[..., object])
E = TypeVar("E")


class Location(NamedTuple):
    """The library and the device of an array."""

    xp: Namespace
    device: object

    def __str__(self) -> str:
        return f"{self.xp.__name__} on {self.device}"

    def convert(self, value: object) -> Any:
        """Convert NumPy numbers to this library and device; return other values unchanged."""
        if isinstance(value, tuple):
            return tuple(self.convert(part) for part in value)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
            return value
        single = value.dtype == np.float64 and not has_double(self.xp, self.device)
        value = value.astype(np.float32) if single else value
        return self.xp.asarray(np.ascontiguousarray(value), device=self.device)

    def widen(self, x: XArray) -> XArray:
        """Convert an array to double precision, or integers without it to single precision."""
        double = has_double(self.xp, self.device)
        if not double and self.xp.isdtype(x.dtype, "real floating"):
            return x
        return self.xp.astype(x, self.xp.float64 if double else self.xp.float32)


def location_of(array: XArray) -> Location | None:
    """Return library and device if results must be returned to them, or None."""
    if not sklearn.get_config()["array_api_dispatch"] or on_host(array):
        return None
    if not array_api_compat.is_array_api_obj(array) or array_api_compat.is_dask_array(array):
        return None
    return Location(namespace(array), device(array))


def has_double(xp: Any, device: object) -> bool:
    """Return whether the library has double precision on the device."""
    if array_api_compat.is_jax_namespace(xp):
        return xp.asarray(0.0).dtype == np.float64
    return "float64" in xp.__array_namespace_info__().dtypes(device=device, kind="real floating")


def dispatch_methods(cls: type) -> None:
    """Wrap the methods of a class so that results are arrays of the argument's library.

    This is scikit-learn's convention: under ``array_api_dispatch``, attributes that were fitted to
    arrays of a library belong to that library, and other methods accept only its arrays.
    """
    for name in _METHODS:
        method = vars(cls).get(name)
        if inspect.isfunction(method) and not hasattr(method, "__isabstractmethod__"):
            run = dispatched(method)
            setattr(cls, name, published_at_once(run) if name in _FITS else run)


def published_at_once(fit: Method) -> Method:
    """Wrap a method so that it fits a copy, whose attributes are adopted on success.

    If the fit raises, the estimator is unchanged and keeps the results of an earlier fit. A fit
    that requires labels takes no blocks, which contain them.
    """
    y = inspect.signature(inspect.unwrap(fit)).parameters.get("y")
    in_memory = y is not None and y.default is inspect.Parameter.empty

    @wraps(fit)
    def run(self: AnyModel, *args: object, **options: object) -> object:
        draft = object.__new__(_working_class(self, getattr(self, "inputs", None)))
        vars(draft).update(vars(self))
        try:
            result = fit(draft, *args, **options)
        except (TypeError, ValueError) as error:
            if in_memory and any(isinstance(part, Blocks) for part in (*args, *options.values())):
                raise TypeError(
                    f"{type(self).__name__} needs all rows at once, so it cannot be fitted to "
                    "blocks; pass arrays in memory"
                ) from error
            raise
        _functions.pop(self, None)
        self.__dict__ = vars(draft)
        return self if result is draft else result

    return cast("Method", run)


def _working_class(estimator: object, inputs: object) -> type:
    """Return the class that implements an estimator for these ``inputs``."""
    kind = type(estimator)
    return getattr(kind, "_by_inputs", {}).get(inputs, kind) if isinstance(inputs, str) else kind


def keep_options(estimator: object) -> None:
    """Keep the options of a fit, which :func:`as_fitted` uses for predictions.

    Also create the cache of predictions, shared by copies of :func:`as_fitted`.
    """
    names = _option_names(type(estimator))
    vars(estimator)["_kept_states"] = {}
    vars(estimator)["_options"] = {name: _unfitted(getattr(estimator, name)) for name in names}


@cache
def _option_names(kind: type[BaseEstimator]) -> tuple[str, ...]:
    return tuple(kind._get_param_names())


def as_fitted(estimator: E) -> E:
    """Return an estimator with the options of its fit; later changes concern the next fit."""
    options = vars(estimator).get("_options")
    if options is None:
        return estimator
    fitted = object.__new__(_working_class(estimator, options.get("inputs")))
    vars(fitted).update(vars(estimator))
    vars(fitted).update(options)
    return cast("E", fitted)


def _unfitted(option: object) -> object:
    """Copy a calibrator, or a list of calibrators, whose options may change later."""
    if isinstance(option, list | tuple):
        return type(option)(_unfitted(part) for part in option)
    return clone(option) if hasattr(type(option), "_takes_arrays") else option


def dispatched(method: Method) -> Method:
    """Wrap a method of an estimator so that its first argument may be of any library.

    Tiny numbers are rounded to zero, whatever ``np.errstate`` is set.
    """
    name = method.__name__
    first = inspect.unwrap(method).__code__.co_varnames[1]
    answer = partial(_fit if name in _FITS else _predict, method)

    @wraps(method)
    def run(self: AnyModel, *args: object, **options: object) -> object:
        if not args:
            args = (options.pop(first),) if first in options else ()
        if not args:
            return method(self, **options)  # Python says which argument is missing.
        try:
            with np.errstate(under="ignore"):
                return answer(self, *args, **options)
        except (TypeError, ValueError) as error:
            _explain(error, self, name, first, *args, *options.values())
            raise

    return cast("Method", run)


def _fit(
    method: Callable[..., object], estimator: AnyModel, x: UserData, /, *args: Any, **options: Any
) -> AnyModel:
    """Fit an estimator, whose attributes become arrays of the library and device of ``x``."""
    location = location_of(x)
    vars(estimator).pop("_fitted_in", None)
    if sklearn.get_config()["array_api_dispatch"]:
        args = tuple(to_host(value) for value in args)
        options = {name: to_host(value) for name, value in options.items()}
    if location is None:
        method(estimator, x, *args, **options)
    else:
        native = estimator._takes_arrays()
        native |= "device" in getattr(estimator, "sources", ()) and accelerated(x) is not None
        with sklearn.config_context(array_api_dispatch=native):
            method(estimator, x if native else to_host(x), *args, **options)
        for name, value in list(vars(estimator).items()):
            if name not in (*_NAMES, *estimator.get_params(deep=False)):
                setattr(estimator, name, location.convert(value) if on_host(value) else value)
        vars(estimator)["_fitted_in"] = str(location)
    keep_options(estimator)
    return estimator


def _predict(
    method: Callable[..., object], estimator: AnyModel, x: UserData, /, *args: Any, **options: Any
) -> object:
    """Call a method that is not a fit, and return arrays of the library and device of ``x``."""
    location, name, fitted = location_of(x), method.__name__, as_fitted(estimator)
    if sklearn.get_config()["array_api_dispatch"] and hasattr(x, "shape"):
        _check_location(estimator, name, location)
    if location is None or fitted._takes_arrays():
        return method(fitted, x, *args, **options)
    if name == "predict" and hasattr(estimator, "classes_"):
        return most_probable(estimator.classes_, estimator.predict_proba(x))
    if name in ("predict_proba", "predict_interval") and hasattr(estimator, "as_function"):
        if estimator not in _functions:
            _functions[estimator] = estimator.as_function()
        f, values = _functions[estimator], location.widen(x)
        if _is_allowed(estimator, f, values):
            if name == "predict_proba":
                return f(values)
            if f.has_interval:
                return f.interval(values, *args, **options)
    with sklearn.config_context(array_api_dispatch=False):
        result = method(fitted, to_host(x), *args, **options)
    return location.convert(result)


def _explain(
    error: Exception, estimator: object, name: str, first: str, x: object, *others: object
) -> None:
    """Raise a more helpful error if arguments are traced, exchanged or of truncated logits."""
    if is_traced(x) or any(map(is_traced, others)):
        raise TypeError(
            f"{first} must be an array with known values, got one that JAX traces: call {name} "
            "outside of jax.jit, vmap and grad; as_function() of a fitted calibrator works inside"
        ) from error
    if name == "fit" and first == "scores" and others and are_exchanged(x, others[0]):
        raise ValueError(
            "scores must come first, then y: fit(scores, y); got labels, then probabilities"
        ) from error
    inputs = getattr(estimator, "inputs", "top_logits")
    truncated = isinstance(x, tuple) and [np.ndim(part) for part in x] in ([2, 2], [2, 2, 1])
    if first == "scores" and truncated and inputs != "top_logits":
        raise ValueError(
            f"scores must be one array for inputs={inputs!r}, got a tuple; for the largest logits "
            "of each row use Temperature or Vector with inputs='top_logits' and classes=k, and for "
            "log probabilities of an API make scores with bayescal.top_logprobs(indices, logprobs)"
        ) from error


def _check_location(estimator: object, name: str, location: Location | None) -> None:
    """Raise if the estimator was fitted to arrays of another library or device."""
    fitted = vars(estimator).get("_fitted_in")
    given = "NumPy" if location is None else str(location)
    if fitted not in (None, given):
        raise ValueError(
            f"{type(estimator).__name__}.{name}() must use the same namespace and device as fit, "
            f"{fitted}, got {given}; as_function() accepts any"
        )


def _is_allowed(estimator: object, f: PredictFunction, values: XArray) -> bool:
    """Return whether scores are valid; otherwise the checks on the host raise."""
    columns = tuple(values.shape[1:])
    if columns != (f.columns,) and not (columns == () and f.columns == 1):
        return False
    return plausible(values if columns else values[:, None], getattr(estimator, "inputs", "scores"))


def most_probable(classes: np.ndarray, probs: XArray) -> AnyArray:
    """Return the most probable class (m,) of each row; string classes are NumPy arrays."""
    xp, location = namespace(probs), location_of(probs)
    best = xp.argmax(probs, axis=1)
    if location is None or classes.dtype.kind not in "biuf":
        return classes[to_host(best)]
    return xp.take(location.convert(classes), best, axis=0)
