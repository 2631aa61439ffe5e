"""Fitted calibrators as pure functions of arrays of any library."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from bayescal._core.arrays import AnyArray, AnyModel, Namespace, namespace, on_host
from bayescal._core.lazy import is_traced, jax, registered
from bayescal.calibrators.base.torch import as_module
from bayescal.data.checks import check_level

#: Arrays and constants of a calibrator by name; nested by position for combined calibrators.
Tree = Mapping[str, Any]
#: Diagnostics of a fit, which no prediction needs.
_DIAGNOSTICS = ("status", "n_iter", "objective", "gradient_norm", "ess", "r_hat", "divergences")


@registered(lambda cls: jax.tree_util.register_pytree_node(cls, _flatten, partial(_unflatten, cls)))
class PredictFunction:
    """A fitted calibrator as a pure function, as returned by ``as_function()``.

    ``f(scores)`` computes the probabilities of ``predict_proba`` with the code of
    ``predict_proba``, in the library, on the device and in the floating type of the scores. Scores
    may be arrays of NumPy, JAX, PyTorch, CuPy and other libraries that follow the array API
    standard. Only shape and type are checked, and nothing leaves the device: NaN gives NaN.

    The function is a JAX pytree whose leaves are the fitted arrays. It can be an argument of
    compiled functions, and one compilation serves all fits with the same options and sizes. It can
    be differentiated if the calibration map can; step functions such as histograms have zero
    derivatives.

    Notes
    -----
    NumPy arrays are computed in float64, half precision in float32, and others in the type of the
    scores. In single precision, probabilities have errors of about 1e-6. Scores on the edge of a
    bin or step are on the same side in single and in double precision. Other discontinuous maps,
    such as nearest neighbors, may put a score within rounding error of a jump on the other side.

    The fitted arrays are copied to the device of the scores at the first call. Outside of compiled
    functions, JAX arrays are computed by one program, which is compiled for each shape and type of
    the scores and each set of options; inside them, the call becomes a part of their program.

    Examples
    --------
    >>> import bayescal as bc, jax
    >>> logits, y = jax.numpy.array([[4.0, 0, 0]] * 4), [0, 0, 1, 2]
    >>> f = bc.Temperature(inputs="logits").fit(logits, y).as_function()
    >>> jax.jit(f)(logits[:1]).round(2).tolist()
    [[0.5, 0.25, 0.25]]
    """

    def __init__(self, owner: AnyModel, state: Tree, columns: int) -> None:
        self._owner, self.columns = owner, columns
        self._arrays, self._constants = _split(state)
        self._copies: dict[Hashable, Any] = {}

    def __call__(self, scores: AnyArray) -> AnyArray:
        """Compute calibrated probabilities.

        Parameters
        ----------
        scores : floating array of shape (..., m, k), or (m,) or (..., m, 1) for binary calibrators
            Scores of the kind that the ``inputs`` of the calibrator names, with as many columns as
            in the fit. Leading axes, such as those of batches of tokens, are preserved. A vector
            (k,) is one row for calibrators with several columns, and a number for those with one,
            so ``jax.vmap(f)`` maps over rows.

        Returns
        -------
        array of shape (..., m, k)
            For multi-label calibrators (..., m, labels). Without the axis m for a single row.

        Raises
        ------
        TypeError
            If scores are not an array, or not of floating type.
        ValueError
            If the number of columns differs from the fit.
        """
        if isinstance(scores, jax.Array) and not _traced([scores, self._arrays]):
            return _compiled(self._beside(scores), scores)
        return self._probs(scores)

    def _beside(self, scores: jax.Array) -> PredictFunction:
        """Return a function whose arrays are JAX's, in the type of the scores."""
        key = "function", str(scores.dtype)
        if key not in self._copies:
            narrow = scores.dtype if scores.dtype.itemsize >= 4 else np.dtype(np.float32)
            moved = _map_leaves(lambda leaf: _move(leaf, jax.numpy, narrow, None), self._arrays)
            self._copies[key] = self.with_arrays(moved)
        return self._copies[key]

    def with_state(
        self, function: Callable[[Tree, AnyArray], AnyArray], values: AnyArray
    ) -> AnyArray:
        """Call ``function(state, values)`` with the state on the device of the values."""
        quiet = np.errstate(over="ignore", under="ignore", invalid="ignore")  # NaN gives NaN
        with quiet if on_host(values) else nullcontext():
            return function(self._at(namespace(values), values), values)

    def as_module(self, dtype: Any = None, *, trainable: bool = False) -> Any:
        """Return the function as a ``torch.nn.Module``, whose arrays are buffers.

        The buffers move with the model that contains the module (``.to(device)``), and belong to
        its ``state_dict``, which can be loaded from another fit with the same options and sizes.

        Parameters
        ----------
        dtype : torch.dtype, optional
            Type of the buffers, by default ``torch.get_default_dtype()``.
        trainable : bool
            Whether the coefficients are parameters, which an optimizer trains further, alone or
            with the network before them: ``theta``, the numbers by which the map computes, such as
            the inverse of the temperature. Other buffers, such as ``temperature``, then keep the
            values of the fit.

        Returns
        -------
        torch.nn.Module
            ``module(scores)`` equals ``f(scores)``.

        Raises
        ------
        ImportError
            If PyTorch is missing.
        ValueError
            If ``trainable`` is set for a map without coefficients, such as ``Isotonic``, or for
            the average over a posterior.
        """
        return as_module(self, dtype, trainable)

    @property
    def arrays(self) -> Tree:
        """The fitted arrays by name; another fit with the same options has the same names."""
        return self._arrays

    def with_arrays(self, arrays: Tree) -> PredictFunction:
        """Return a copy with other arrays of the same names, from any library."""
        other = copy(self)
        other._arrays, other._copies = arrays, {}
        return other

    def interval(self, scores: AnyArray, level: float = 0.9) -> tuple[AnyArray, AnyArray]:
        """Compute the ends of central credible intervals, like ``predict_interval``.

        Parameters
        ----------
        scores : array
            Scores as in a call of the function.
        level : float
            Posterior probability of each interval, in (0, 1).

        Returns
        -------
        lower, upper : arrays of shape (..., m, k), or (..., m) for binary calibrators

        Raises
        ------
        AttributeError
            If the calibrator has no posterior, or functions do not contain it (``Isotonic``,
            ``CenteredIsotonic``, ``Histogram``, ``ScalingBinning``, ``VennAbers`` and
            ``WeightScaling``).
        """
        level = check_level(level)
        if not self.has_interval:
            raise AttributeError(
                f"interval needs a posterior in the function's state, which {self!r} does not "
                "have; the calibrator's predict_interval may have intervals"
            )
        ends = self._run(scores, lambda state, values: self._owner._map_ends(state, values, level))
        single = len(scores.shape) == int(self.columns > 1)
        rows = () if single else (slice(None),) * max(len(scores.shape) - 1, 1)
        return ends[(*rows, 0, ...)], ends[(*rows, 1, ...)]

    @property
    def has_interval(self) -> bool:
        """Whether the calibrator has a posterior."""
        return self._owner._has_ends(self._whole(self._arrays))

    def _probs(self, scores: AnyArray) -> AnyArray:
        probs = self._run(scores, self._owner._map)
        if getattr(self._owner, "keeps", None) != "argmax" or self.columns == 1:
            return probs
        return probs if namespace(probs).finfo(probs.dtype).bits == 64 else keep_top(probs, scores)

    def _run(self, scores: AnyArray, function: Callable[[Tree, AnyArray], AnyArray]) -> AnyArray:
        try:
            xp = namespace(scores)
        except TypeError:
            raise TypeError(
                f"scores must be an array, got {type(scores).__name__}; use predict_proba"
            ) from None
        if not xp.isdtype(scores.dtype, "real floating"):
            raise TypeError(f"scores must be of floating type, got {scores.dtype}")
        shape = tuple(scores.shape)
        # Compare lengths first: a traced number of rows must not be compared with the columns.
        if len(shape) == (self.columns > 1) and (not shape or shape[0] == self.columns):
            row = xp.reshape(scores, (1,) if self.columns == 1 else (1, self.columns))
            return self._run(row, function)[0, ...]
        one_column = len(shape) == 1 and self.columns == 1
        if not one_column and (len(shape) < 2 or shape[-1] != self.columns):
            expected = (
                f"{'(m,), ' * (self.columns == 1)}(m, {self.columns}) or (..., m, {self.columns})"
            )
            raise ValueError(f"scores must have shape {expected} as in the fit, got {shape}")
        # Reshape only if necessary: it hinders tracing of programs for any number of rows.
        rows = xp.reshape(scores, (-1, self.columns)) if len(shape) > 2 else scores
        with np.errstate(over="ignore", under="ignore") if on_host(rows) else nullcontext():
            result = self.with_state(function, at_least_single(rows))
            result = xp.astype(result, scores.dtype, copy=False)
        return xp.reshape(result, (*shape[:-1], *result.shape[1:])) if len(shape) > 2 else result

    def _at(self, xp: Namespace, values: AnyArray) -> Tree:
        """Return the state on the device of the scores and in their type."""
        host = on_host(values)
        device = None if host or isinstance(values, jax.Array) else values.device
        key = "host" if host else (xp.__name__, str(device), str(values.dtype))
        if key not in self._copies:
            arrays = self._arrays
            if not host:
                arrays = _map_leaves(lambda leaf: _move(leaf, xp, values.dtype, device), arrays)
            if not host and device is None and _traced(arrays):
                return self._whole(arrays)  # tracers must not outlive their trace
            self._copies[key] = self._whole(arrays)
        return self._copies[key]

    def _whole(self, arrays: Tree) -> Tree:
        return _merge(arrays, self._constants)

    def __repr__(self) -> str:
        return f"PredictFunction({type(self._owner).__name__})"


def keep_top(probs: AnyArray, scores: AnyArray) -> AnyArray:
    """Lower probabilities that only rounding makes those of the top class, which scores show."""
    xp = namespace(probs)
    lower = scores < xp.max(scores, axis=-1, keepdims=True)
    most = xp.max(probs, axis=-1, keepdims=True) * (1 - 2 * float(xp.finfo(probs.dtype).eps))
    return xp.where(lower, xp.minimum(probs, most), probs)


def at_least_single(scores: AnyArray) -> AnyArray:
    """Convert half precision to float32, or NumPy arrays in half precision to float64."""
    if on_host(scores):
        return scores if scores.dtype == np.float32 else scores.astype(np.float64, copy=False)
    xp = namespace(scores)
    half = float(xp.finfo(scores.dtype).eps) > 1e-6
    return xp.astype(scores, xp.float32) if half else scores


@dataclass(frozen=True)
class _Static:
    """Constants of compiled programs: options, and numbers that determine the computation."""

    key: Hashable
    owner: AnyModel = field(compare=False)
    constants: Tree = field(compare=False)
    columns: int = field(compare=False)


def _flatten(f: PredictFunction) -> tuple[tuple[Tree], _Static]:
    key = _options(f._owner), _frozen(f._constants), f.columns
    return (f._arrays,), _Static(key, f._owner, f._constants, f.columns)


def _unflatten(
    cls: type[PredictFunction], static: _Static, children: tuple[Tree]
) -> PredictFunction:
    f = object.__new__(cls)
    f._owner, f.columns = static.owner, static.columns
    (f._arrays,), f._constants, f._copies = children, static.constants, {}
    return f


@jax.jit
def _compiled(f: PredictFunction, scores: jax.Array) -> jax.Array:
    return f._probs(scores)


def _options(value: AnyModel) -> Hashable:
    """Return the options of a calibrator as a hashable value."""
    parts = getattr(value, "calibrators_", None)
    if parts is not None:
        return type(value), tuple(_options(part) for part in parts)
    if hasattr(value, "get_params"):
        params = value.get_params(deep=False)
        return type(value), tuple((name, _options(option)) for name, option in params.items())
    return tuple(value) if isinstance(value, list) else value


def _split(state: Tree) -> tuple[Tree, Tree]:
    """Split a state into fitted numbers and constants that determine the computation."""
    arrays, constants = {}, {}
    for name, value in state.items():
        if isinstance(value, Mapping):
            arrays[name], constants[name] = _split(value)
        elif value.dtype.kind == "b" or (value.dtype.kind in "iu" and value.ndim == 0):
            constants[name] = value
        else:
            arrays[name] = value.astype(np.int32) if value.dtype.kind in "iu" else value
    return arrays, constants


def _merge(arrays: AnyArray, constants: Tree) -> AnyArray:
    if not isinstance(arrays, Mapping):
        return arrays
    merged = {name: _merge(leaf, constants.get(name, {})) for name, leaf in arrays.items()}
    return {**constants, **merged}


def _map_leaves(function: Callable[[AnyArray], AnyArray], tree: AnyArray) -> AnyArray:
    if isinstance(tree, Mapping):
        return {name: _map_leaves(function, leaf) for name, leaf in tree.items()}
    return function(tree)


def _frozen(tree: AnyArray) -> Hashable:
    if isinstance(tree, Mapping):
        return tuple((name, _frozen(leaf)) for name, leaf in sorted(tree.items()))
    return tree.dtype.str, tree.shape, tree.tobytes()


def _move(array: AnyArray, xp: Namespace | ModuleType, dtype: object, device: object) -> AnyArray:
    if getattr(array, "requires_grad", False):
        return array.to(device=device, dtype=dtype)  # torch.asarray may detach it
    kind = xp if not on_host(array) else np
    if kind.isdtype(array.dtype, "real floating"):
        return xp.asarray(array, dtype=dtype, device=device)
    return xp.asarray(array, device=device)


def _traced(arrays: object) -> bool:
    return any(is_traced(leaf) for leaf in jax.tree.leaves(arrays))


def needed(state: Tree) -> Tree:
    """Return the entries of a state that predictions may need."""
    unused = (*_DIAGNOSTICS, "candidates", "missing_names")
    return {
        name: value
        for name, value in state.items()
        if name not in unused and not name.startswith(("cv_", "held_out_"))
    }
