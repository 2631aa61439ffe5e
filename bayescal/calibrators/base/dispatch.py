"""Arrays of any library in and out, where scikit-learn's ``array_api_dispatch`` is set."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import array_api_compat
import numpy as np
import sklearn
from sklearn.base import clone

from bayescal._core.arrays import accelerated, device, namespace, on_host, to_host
from bayescal.calibrators.base.function import PredictFunction
from bayescal.data.scores import plausible

#: What takes scores or features first.
_METHODS = (
    "fit",
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "predict_interval",
)
#: Of texts and other objects, for which only NumPy has arrays.
_NAMES = ("classes_", "feature_names_in_", "label_names_")
_functions: WeakKeyDictionary[Any, PredictFunction] = WeakKeyDictionary()


class Place(NamedTuple):
    """The library of an array, and where the array is."""

    xp: Any
    device: Any

    def __str__(self) -> str:
        return f"{self.xp.__name__} on {self.device}"

    def take(self, value: Any) -> Any:
        """Return NumPy's numbers here, in what precision there is; other values as they are."""
        if isinstance(value, tuple):
            return tuple(self.take(own) for own in value)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
            return value
        single = value.dtype == np.float64 and not has_double(self.xp, self.device)
        value = value.astype(np.float32) if single else value
        return self.xp.asarray(np.ascontiguousarray(value), device=self.device)


def place_of(array: Any) -> Place | None:
    """Return where an array is that is to be answered there, or None."""
    if not sklearn.get_config()["array_api_dispatch"] or on_host(array):
        return None
    if not array_api_compat.is_array_api_obj(array) or array_api_compat.is_dask_array(array):
        return None
    return Place(namespace(array), device(array))


def has_double(xp: Any, place: Any) -> bool:
    """Return whether there is double precision."""
    if array_api_compat.is_jax_namespace(xp):
        return xp.asarray(0.0).dtype == np.float64
    return "float64" in xp.__array_namespace_info__().dtypes(device=place, kind="real floating")


def dispatch_methods(cls: type) -> None:
    """Make the methods of a class answer arrays in their library, on their device.

    By scikit-learn's convention: under ``array_api_dispatch`` attributes that were fitted to
    arrays of a library are that library's, and only such arrays are taken after.
    """
    for name in _METHODS:
        method = vars(cls).get(name)
        if inspect.isfunction(method) and not hasattr(method, "__isabstractmethod__"):
            run = dispatched(method)
            setattr(cls, name, published_at_once(run) if name == "fit" else run)


def published_at_once(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that fits a copy, whose attributes the estimator takes over at the end.

    A fit that raises leaves the estimator as it was, with all of an earlier fit.
    """

    @wraps(fit)
    def run(self: Any, *args: Any, **options: Any) -> Any:
        draft = object.__new__(_working_class(self, getattr(self, "inputs", None)))
        vars(draft).update(vars(self))
        result = fit(draft, *args, **options)
        _functions.pop(self, None)
        self.__dict__ = vars(draft)
        return self if result is draft else result

    return run


def _working_class(estimator: Any, inputs: Any) -> type:
    """Return the class that does the work for such inputs: most often the estimator's."""
    kind = type(estimator)
    return getattr(kind, "_by_inputs", {}).get(inputs, kind) if isinstance(inputs, str) else kind


def keep_options(estimator: Any) -> None:
    """Keep the options of a fit, of which :func:`as_fitted` makes predictions."""
    names = _option_names(type(estimator))
    vars(estimator)["_options"] = {name: _unfitted(getattr(estimator, name)) for name in names}


@cache
def _option_names(kind: Any) -> tuple[str, ...]:
    """Read the names of options off the signature, once for each class."""
    return tuple(kind._get_param_names())


def as_fitted(estimator: Any) -> Any:
    """Return an estimator with the options of its fit: those set later are for the next one."""
    options = vars(estimator).get("_options")
    if options is None:
        return estimator
    fitted = object.__new__(_working_class(estimator, options.get("inputs")))
    vars(fitted).update(vars(estimator))
    vars(fitted).update(options)
    return fitted


def _unfitted(option: Any) -> Any:
    """Return a copy of a calibrator, or of some, whose own options may be set later."""
    if isinstance(option, list | tuple):
        return type(option)(_unfitted(own) for own in option)
    return clone(option) if hasattr(type(option), "_takes_arrays") else option


def dispatched(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of an estimator, whose first argument may be of any library."""
    name = method.__name__

    @wraps(method)
    def run(self: Any, x: Any, *args: Any, **options: Any) -> Any:
        place = place_of(x)
        if name == "fit":
            _fit(self, method, place, x, args, options)
            keep_options(self)
            return self
        fitted = as_fitted(self)
        if sklearn.get_config()["array_api_dispatch"] and hasattr(x, "shape"):
            _check_place(self, name, place)
        if place is None or fitted._takes_arrays():
            return method(fitted, x, *args, **options)
        if name == "predict" and hasattr(self, "classes_"):
            return most_probable(self.classes_, self.predict_proba(x))
        if name in ("predict_proba", "predict_interval") and hasattr(self, "as_function"):
            f, values = _function_of(self), _double(place, x)
            if _is_allowed(self, f, values):
                if name == "predict_proba":
                    return f(values)
                if f.has_interval:
                    return f.interval(values, *args, **options)
        with sklearn.config_context(array_api_dispatch=False):
            found = method(fitted, to_host(x), *args, **options)
        return place.take(found)

    return run


def _fit(
    estimator: Any,
    method: Callable[..., Any],
    place: Place | None,
    x: Any,
    args: tuple[Any, ...],
    options: dict[str, Any],
) -> None:
    vars(estimator).pop("_fitted_in", None)
    if sklearn.get_config()["array_api_dispatch"]:
        args = tuple(to_host(own) for own in args)
        options = {name: to_host(own) for name, own in options.items()}
    if place is None:
        method(estimator, x, *args, **options)
        return
    native = estimator._takes_arrays()
    native |= "device" in getattr(estimator, "sources", ()) and accelerated(x) is not None
    with sklearn.config_context(array_api_dispatch=native):
        method(estimator, x if native else to_host(x), *args, **options)
    for name, value in list(vars(estimator).items()):
        if name not in (*_NAMES, *estimator.get_params(deep=False)):
            setattr(estimator, name, place.take(value) if on_host(value) else value)
    vars(estimator)["_fitted_in"] = str(place)


def _check_place(estimator: Any, name: str, place: Place | None) -> None:
    """Raise where an estimator was fitted to arrays of another library, or elsewhere."""
    fitted, given = vars(estimator).get("_fitted_in"), "NumPy" if place is None else str(place)
    if fitted not in (None, given):
        raise ValueError(
            f"{type(estimator).__name__}.{name}() must use the same namespace and device as fit, "
            f"{fitted}, got {given}; as_function() takes arrays of any"
        )


def _function_of(estimator: Any) -> PredictFunction:
    if estimator not in _functions:
        _functions[estimator] = estimator.as_function()
    return _functions[estimator]


def _double(place: Place, x: Any) -> Any:
    xp = place.xp
    wider = has_double(xp, place.device) or not xp.isdtype(x.dtype, "real floating")
    wide = xp.float64 if has_double(xp, place.device) else xp.float32
    return xp.astype(x, wide) if wider else x


def _is_allowed(estimator: Any, f: PredictFunction, values: Any) -> bool:
    """Return whether nothing is wrong with scores; else the host's checks say what."""
    columns = tuple(values.shape[1:])
    if columns != (f.columns,) and not (columns == () and f.columns == 1):
        return False
    return plausible(values if columns else values[:, None], getattr(estimator, "inputs", "scores"))


def most_probable(classes: np.ndarray, probs: Any) -> Any:
    """Return the most probable class (m,) of each row; texts are NumPy's, whatever the rows."""
    xp, place = namespace(probs), place_of(probs)
    best = xp.argmax(probs, axis=1)
    if place is None or classes.dtype.kind not in "biuf":
        return classes[to_host(best)]
    return xp.take(place.take(classes), best, axis=0)
