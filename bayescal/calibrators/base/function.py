"""Fitted calibrators as pure functions of arrays of any library."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import nullcontext
from copy import copy
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from bayescal._core.arrays import namespace, on_host
from bayescal.calibrators.base.torch import as_module
from bayescal.data.checks import check_level

#: Arrays and constants of a calibrator by name, of calibrators made of others by their place.
Tree = Mapping[str, Any]
#: What is said of a fit, and changes no prediction.
_SAID = ("status", "n_iter", "objective", "gradient_norm", "ess", "r_hat", "divergences")


class PredictFunction:
    """A fitted calibrator as a pure function; made by ``as_function()`` of any calibrator.

    ``f(scores)`` returns the probabilities that ``predict_proba`` would, by the same code, in the
    library, on the device and in the floating type of the scores: of NumPy, JAX, PyTorch, CuPy and
    others that follow the array API standard. Nothing is checked but shape and type, and nothing
    leaves the device: NaN gives NaN.

    It is a pytree of JAX, whose leaves are the fitted arrays: it can be an argument of compiled
    functions, and one compilation serves all fits of the same options and sizes. It can be
    differentiated where the map can be; maps by steps, as of bins, have derivatives of zero.

    Notes
    -----
    NumPy's arrays are calculated in float64, others in their own type, half precision in float32.
    In single precision probabilities have errors of about 1e-6. Scores on the edge of a bin or of a
    step lie on the same side in single and in double precision; where other maps jump, as between
    neighbors, a score within rounding of that may fall on the other side.

    Arrays that are not yet where the scores are are copied there at the first call.

    Examples
    --------
    >>> import bayescal as bc, jax
    >>> logits, y = jax.numpy.array([[4.0, 0, 0]] * 4), [0, 0, 1, 2]
    >>> f = bc.Temperature(inputs="logits").fit(logits, y).as_function()
    >>> jax.jit(f)(logits[:1]).round(2).tolist()
    [[0.5, 0.25, 0.25]]
    """

    def __init__(self, owner: Any, state: Tree, columns: int) -> None:
        self._owner, self.columns = owner, columns
        self._arrays, self._constants = _split(state)
        self._copies: dict[Hashable, Tree] = {}

    def __call__(self, scores: Any) -> Any:
        """Return calibrated probabilities.

        Parameters
        ----------
        scores : array of floating type, of shape (..., m, k), or (m,) or (..., m, 1) of two classes
            As the ``inputs`` of the calibrator says, and of as many columns as at the fit. Axes
            before, as of batches of tokens, are kept.

        Returns
        -------
        array of shape (..., m, k)
            Of several labels (..., m, labels).

        Raises
        ------
        TypeError
            If scores are no array, or not of floating type.
        ValueError
            If they have another number of columns than at the fit.
        """
        return self._run(scores, lambda state, values: self._owner._map(state, values))

    def with_state(self, function: Callable[[Tree, Any], Any], values: Any) -> Any:
        """Return what a function makes of the state, where values are, and of these."""
        quiet = np.errstate(over="ignore", under="ignore", invalid="ignore")  # NaN is let through
        with quiet if on_host(values) else nullcontext():
            return function(self._at(namespace(values), values), values)

    def as_module(self, dtype: Any = None) -> Any:
        """Return the function as a ``torch.nn.Module``, whose arrays are buffers.

        So they move with a model that it is part of (``.to(device)``), and are in its
        ``state_dict``: that of another fit with the same options and sizes can be loaded.

        Parameters
        ----------
        dtype : torch.dtype, optional
            Of the buffers; by default that of new tensors, ``torch.get_default_dtype()``.

        Returns
        -------
        torch.nn.Module
            ``module(scores)`` is what ``f(scores)`` is. It is trained no further: buffers are no
            parameters.

        Raises
        ------
        ImportError
            Without PyTorch.
        """
        return as_module(self, dtype)

    @property
    def arrays(self) -> Tree:
        """What was fitted, by name: numbers that another fit of the same kind has, too."""
        return self._arrays

    def with_arrays(self, arrays: Tree) -> PredictFunction:
        """Return the same function of other arrays of the same names, of any library."""
        other = copy(self)
        other._arrays, other._copies = arrays, {}
        return other

    def interval(self, scores: Any, level: float = 0.9) -> tuple[Any, Any]:
        """Return ends of central credible intervals, as ``predict_interval`` does.

        Parameters
        ----------
        scores : array, as for the call
        level : float
            Posterior probability of each interval, in (0, 1).

        Returns
        -------
        lower, upper : arrays of shape (..., m, k), of two classes (..., m)

        Raises
        ------
        AttributeError
            If the calibrator has no posterior.
        """
        level = check_level(level)
        if not self.has_interval:
            raise AttributeError(f"interval needs a posterior, which {self!r} does not have")
        ends = self._run(scores, lambda state, values: self._owner._map_ends(state, values, level))
        rows = (slice(None),) * max(len(scores.shape) - 1, 1)
        return ends[(*rows, 0, ...)], ends[(*rows, 1, ...)]

    @property
    def has_interval(self) -> bool:
        """Whether there is a posterior."""
        return self._owner._has_ends(self._whole(self._arrays))

    def _run(self, scores: Any, function: Callable[[Tree, Any], Any]) -> Any:
        try:
            xp = namespace(scores)
        except TypeError:
            raise TypeError(
                f"scores must be an array, got {type(scores).__name__}; predict_proba takes others"
            ) from None
        if not xp.isdtype(scores.dtype, "real floating"):
            raise TypeError(f"scores must be of floating type, got {scores.dtype}")
        shape = tuple(scores.shape)
        flat = len(shape) == 1 and self.columns == 1
        if not flat and (len(shape) < 2 or shape[-1] != self.columns):
            wanted = (
                f"{'(m,), ' * (self.columns == 1)}(m, {self.columns}) or (..., m, {self.columns})"
            )
            raise ValueError(f"scores must have shape {wanted} as at the fit, got {shape}")
        # Programs for any number of rows are traced, which reshaping hinders: only where it must.
        rows = xp.reshape(scores, (-1, self.columns)) if len(shape) > 2 else scores
        with np.errstate(over="ignore", under="ignore") if on_host(rows) else nullcontext():
            found = self.with_state(function, at_least_single(rows))
            found = xp.astype(found, scores.dtype, copy=False)
        return xp.reshape(found, (*shape[:-1], *found.shape[1:])) if len(shape) > 2 else found

    def _at(self, xp: Any, values: Any) -> Tree:
        """Return the state where the scores are, in their type."""
        if on_host(values):
            return self._whole(self._arrays)
        device = None if isinstance(values, jax.Array) else values.device
        place = xp.__name__, str(device), str(values.dtype)
        if place not in self._copies:
            moved = _each(lambda own: _move(own, xp, values.dtype, device), self._arrays)
            if device is None and _traced(moved):
                return self._whole(moved)  # of one trace alone
            self._copies[place] = moved
        return self._whole(self._copies[place])

    def _whole(self, arrays: Tree) -> Tree:
        return _merge(arrays, self._constants)

    def __repr__(self) -> str:
        return f"PredictFunction({type(self._owner).__name__})"


def at_least_single(scores: Any) -> Any:
    """Return scores in the type in which they are calculated: NumPy's in float64."""
    if on_host(scores):
        return scores.astype(np.float64, copy=False)
    xp = namespace(scores)
    half = float(xp.finfo(scores.dtype).eps) > 1e-6
    return xp.astype(scores, xp.float32) if half else scores


class _Static:
    """What is constant in compiled programs: options, and numbers that say how to compute."""

    def __init__(self, owner: Any, constants: Tree, columns: int) -> None:
        self.owner, self.constants, self.columns = owner, constants, columns
        self._key = _options(owner), _frozen(constants), columns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Static) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def _flatten(f: PredictFunction) -> tuple[tuple[Tree], _Static]:
    return (f._arrays,), _Static(f._owner, f._constants, f.columns)


def _unflatten(cls: type[PredictFunction], static: _Static, children: tuple[Tree]) -> Any:
    f = object.__new__(cls)
    f._owner, f.columns = static.owner, static.columns
    (f._arrays,), f._constants, f._copies = children, static.constants, {}
    return f


def register(cls: type[PredictFunction]) -> None:
    """Make a class of functions one of JAX's pytrees."""
    jax.tree_util.register_pytree_node(cls, _flatten, partial(_unflatten, cls))


register(PredictFunction)


def _options(value: Any) -> Hashable:
    """Return what tells options apart."""
    parts = getattr(value, "calibrators_", None)
    if parts is not None:
        return type(value), tuple(_options(part) for part in parts)
    if hasattr(value, "get_params"):
        params = value.get_params(deep=False)
        return type(value), tuple((name, _options(own)) for name, own in params.items())
    return tuple(value) if isinstance(value, list) else value


def _split(state: Tree) -> tuple[Tree, Tree]:
    """Return the arrays that are numbers, and those that say how to compute."""
    arrays, constants = {}, {}
    for name, own in state.items():
        if isinstance(own, Mapping):
            arrays[name], constants[name] = _split(own)
        elif own.dtype.kind == "b" or (own.dtype.kind in "iu" and own.ndim == 0):
            constants[name] = own
        else:
            arrays[name] = own.astype(np.int32) if own.dtype.kind in "iu" else own
    return arrays, constants


def _merge(arrays: Tree, constants: Tree) -> Tree:
    both = {**constants, **arrays}
    return {
        name: _merge(own, constants.get(name, {})) if isinstance(own, Mapping) else own
        for name, own in both.items()
    }


def _each(function: Callable[[Any], Any], tree: Tree) -> Tree:
    return {
        name: _each(function, own) if isinstance(own, Mapping) else function(own)
        for name, own in tree.items()
    }


def _frozen(constants: Tree) -> Hashable:
    return tuple(
        (
            name,
            _frozen(own) if isinstance(own, Mapping) else (own.dtype.str, own.shape, own.tobytes()),
        )
        for name, own in sorted(constants.items())
    )


def _move(own: Any, xp: Any, dtype: Any, device: Any) -> Any:
    kind = xp if not on_host(own) else np
    if kind.isdtype(own.dtype, "real floating"):
        return xp.asarray(own, dtype=dtype, device=device)
    return xp.asarray(own, device=device)


def _traced(arrays: Tree) -> bool:
    return any(isinstance(own, Tracer) for own in jax.tree.leaves(arrays))


def needed(state: Tree) -> Tree:
    """Return what predictions may need of a state."""
    said = (*_SAID, "candidates", "missing_names")
    return {
        name: own
        for name, own in state.items()
        if name not in said and not name.startswith(("cv_", "held_out_"))
    }
