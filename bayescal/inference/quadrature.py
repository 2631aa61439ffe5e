"""Gauss-Legendre quadrature over the posterior of up to three scalar parameters."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.numerics import nan_to_minus_inf, normalise_log_weights
from bayescal._core.structure import cached_by_structure
from bayescal.inference._draws import Draws
from bayescal.inference._integrator import Integrator
from bayescal.inference._space import UNIT_RANGE, line_range, line_value, random_sites
from bayescal.inference._track import track_box
from bayescal.inference._window import Window, find_peak, find_window, grid_values, maximise
from bayescal.models import Prior
from bayescal.models._prior import log_density, walk

__all__ = ["Box", "Quadrature"]

#: Nodes for each parameter, by which three rules are compared.
_COMPARED = (32, 40, 48)
#: Nodes for each of 1, 2 or 3 parameters where those disagree.
_MORE = {1: (64, 128, 256, 512, 1024, 2048), 2: (64, 128, 256, 512), 3: (64, 96)}
_TOLERANCE = 1e-10
#: A box must reach so many nats below the peak: what lies beyond weighs less than the tolerance.
_DEEP = 28.0


class Box(NamedTuple):
    """Where the posterior of one data set lies, in coordinates, and how well the rule does.

    Attributes
    ----------
    low, high : arrays of shape (d,)
        Ends of the box in straightened coordinates u.
    peak : array of shape (d,)
    shear : array of shape (d, d)
        The coordinates are t = peak + shear (u - peak).
    order : integer scalar
        Number of nodes for each parameter.
    evidence : array of shape (1 + classes,)
        Log evidence, and what it were with one more observation of each class.
    gap : array of shape (1 + classes,)
        Relative differences between this rule's and the next coarser rule's.
    error : scalar
        Estimated relative error of any of them.
    """

    low: jax.Array
    high: jax.Array
    peak: jax.Array
    shear: jax.Array
    order: jax.Array
    evidence: jax.Array
    gap: jax.Array
    error: jax.Array


def _coordinates(prior: Prior, t: jax.Array) -> tuple[dict[str, Any], jax.Array, jax.Array]:
    """Return parameters, log prior density and log Jacobian at coordinates ``t`` (d,)."""
    index = iter(range(t.shape[0]))
    log_jacobian = jnp.zeros((), t.dtype)

    def choose(name: str, d: Any) -> jax.Array:
        nonlocal log_jacobian
        value, log_slope = line_value(d, t[next(index)])
        log_jacobian = log_jacobian + log_slope
        return value

    params, sites = walk(prior, choose)
    return params, log_density(sites), log_jacobian


@cached_by_structure
def _ranges(prior: Prior) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the ends of the coordinates' ranges, which depend on kinds of supports alone."""
    ends: list[tuple[float, float]] = []

    def run(key: jax.Array) -> int:
        def choose(name: str, d: Any) -> Any:
            ends.append(line_range(d))
            return d.sample(jax.random.fold_in(key, len(ends)))

        walk(prior, choose)
        return 0

    jax.eval_shape(run, jax.random.key(0))
    return tuple(e[0] for e in ends), tuple(e[1] for e in ends)


def _unsheared(
    prior: Prior, peak: jax.Array, shear: jax.Array, u: jax.Array
) -> tuple[dict[str, Any], jax.Array, jax.Array]:
    """Return ``_coordinates`` at t = peak + shear (u - peak); outside the ranges no density."""
    t = peak + jnp.matmul(shear, u - peak, precision="highest")
    low, high = (jnp.asarray(end, t.dtype) for end in _ranges(prior))
    inside = ((t >= low) & (t <= high)).all()
    params, log_prior, log_jacobian = _coordinates(prior, jnp.clip(t, low, high))
    return params, jnp.where(inside, log_prior, -jnp.inf), log_jacobian


def _log_target(
    prior: Prior,
    sums: jax.Array,
    origin: jax.Array,
    peak: jax.Array,
    shear: jax.Array,
    jacobian: bool = True,
) -> Any:
    """Return the function u -> log of prior times likelihood, by coordinate unless told not to."""

    def function(u: jax.Array) -> jax.Array:
        params, log_prior, log_jacobian = _unsheared(prior, peak, shear, u)
        log_lik = _log_likelihood(prior.family.natural(params, origin), sums)
        total = log_prior + log_lik + (log_jacobian if jacobian else 0.0)
        return nan_to_minus_inf(total)

    return function


def _log_likelihood(natural: jax.Array, sums: jax.Array) -> jax.Array:
    """Return the log likelihood, ``-inf`` where rounding leaves it unknown to within a nat.

    Without that, deviations that are tiny beside the distance of the data, as the search meets
    them, would seem to make the data likely.
    """
    terms = natural * sums
    known = jnp.sum(jnp.abs(terms)) * jnp.finfo(terms.dtype).eps < 1
    return jnp.where(known, jnp.sum(terms), -jnp.inf)


def _rule(low: jax.Array, high: jax.Array, m: int) -> tuple[list[jax.Array], jax.Array]:
    """Return the nodes along each axis and the log weights (m, ..., m) of the product rule."""
    unit, weights = np.polynomial.legendre.leggauss(m)
    half = 0.5 * (high - low)
    axes = [low[i] + half[i] * (jnp.asarray(unit) + 1) for i in range(low.shape[0])]
    logs = [jnp.log(jnp.asarray(weights)) + jnp.log(half[i]) for i in range(low.shape[0])]
    total = logs[0]
    for more in logs[1:]:
        total = total[..., None] + more
    return axes, total


def _typical(sums: jax.Array) -> jax.Array:
    """Return features (classes, p) of a typical observation of each class.

    That is the average over the class, or over all data for a class without observations.
    """
    count = sums[:, :1]
    overall = sums.sum(axis=0) / jnp.maximum(count.sum(), 1)
    return jnp.where(count > 0, sums / jnp.maximum(count, 1), overall)


def _evidence(
    prior: Prior, sums: jax.Array, origin: jax.Array, box: Box, orders: tuple[int, ...]
) -> tuple[list[jax.Array], jax.Array]:
    """Return ``Box.evidence`` by rules of so many nodes, and whether the box holds all."""
    nodes, logs = [], []
    for m in orders:
        axes, log_rule = _rule(box.low, box.high, m)
        mesh = jnp.stack(jnp.meshgrid(*axes, indexing="ij"), axis=-1)
        nodes.append(mesh.reshape(-1, len(axes)))
        logs.append(log_rule.ravel())
    more = _typical(sums)

    def one(u: jax.Array) -> jax.Array:
        params, log_prior, log_jacobian = _unsheared(prior, box.peak, box.shear, u)
        natural = prior.family.natural(params, origin)
        extra = jnp.concatenate([jnp.zeros(1), jnp.sum(natural * more, axis=-1)])
        total = log_prior + log_jacobian + _log_likelihood(natural, sums)
        return nan_to_minus_inf(total + extra)

    # All rules in one call: what is traced once is compiled once.
    values = jax.vmap(one, out_axes=1)(jnp.concatenate(nodes)) + jnp.concatenate(logs)
    ends = np.cumsum([0, *(len(log) for log in logs)])
    parts = [values[:, i:j] for i, j in itertools.pairwise(ends)]
    closed = _closed(prior, box, parts[-1][0], orders[-1])
    return [normalise_log_weights(part)[1] for part in parts], closed


def _closed(prior: Prior, box: Box, values: jax.Array, m: int) -> jax.Array:
    """Whether the density has vanished at the faces of a box, save at the ends of a support."""
    d = box.low.shape[0]
    table, enough = values.reshape((m,) * d), jnp.max(values) - _DEEP
    closed = jnp.ones((), bool)
    for i, (low, high) in enumerate(zip(*_ranges(prior), strict=True)):
        profile = jnp.max(table, axis=tuple(j for j in range(d) if j != i))
        hard = (low, high) == UNIT_RANGE
        closed &= (profile[0] < enough) | (hard & (box.low[i] <= low))
        closed &= (profile[-1] < enough) | (hard & (box.high[i] >= high))
    return closed


def _gap(first: jax.Array, second: jax.Array) -> jax.Array:
    """Return the relative differences, at most 1, between evidences given by logarithms."""
    gap = jnp.minimum(jnp.abs(jnp.expm1(first - second)), 1.0)
    return jnp.where(jnp.isnan(gap), 1.0, gap)


def _error(gap: jax.Array, before: jax.Array, closed: jax.Array) -> jax.Array:
    """Estimate the error of the finest of three rules from the two gaps between them.

    The gap is the coarser rule's error. The last step divided it by a factor, and the next one will
    by at least as much; ten are counted on at most, lest an accident promise more.
    """
    rate = gap / jnp.where(before > 0, before, 1)
    return jnp.where(closed, jnp.max(gap * jnp.clip(rate, 0.1, 1.0)), 1.0)


def _second_is_better(windows: Window) -> jax.Array:
    """Choose between two boxes: that which its grid resolves, holds more mass, or is smaller."""
    volume = jnp.prod(windows.high - windows.low, axis=1)
    resolved = windows.points > 2.5 ** windows.low.shape[1]
    more = windows.mass[1] - windows.mass[0]
    by_mass = jnp.where(jnp.abs(more) > 0.01, more > 0, volume[1] < volume[0])
    return jnp.where(resolved[0] == resolved[1], by_mass, resolved[1])


class Quadrature(Integrator):
    """A product Gauss-Legendre rule on the box that holds the posterior.

    The box is found by grids that close in on it, in coordinates that suit each prior's support:
    cubic on an interval, a hyperbolic sine on the line, its exponential on a half line. The rule has
    48 nodes for each parameter, and more where 32, 40 and 48 disagree about the evidence or about
    the density of one more observation. Work is O(48**d * points).
    """

    name = "quadrature"
    weighted = False

    def check(self, prior: Prior) -> None:
        sites = random_sites(prior)
        vectors = [site.name for site in sites if site.shape != ()]
        if len(sites) > 3 or vectors:
            found = f"vectors {', '.join(vectors)}" if vectors else f"{len(sites)} parameters"
            raise ValueError(
                f"integrator='quadrature' takes up to three scalar parameters, got {found}; "
                "use 'montecarlo', 'importance' or 'nuts', or fix some parameters"
            )
        _ranges(prior)

    def prepare(
        self,
        prior: Prior,
        sums: jax.Array,
        origin: jax.Array,
        key: jax.Array,
        num_samples: int,
        stacked: bool,
    ) -> Box:
        def improve(step: Any, boxes: Box) -> Box:
            return _improve_rough(step, prior if stacked else None, sums, boxes)

        def search(quick: bool, own: Any, sums: jax.Array, boxes: Box | None) -> Box:
            return _find_boxes(self, own if stacked else prior, sums, origin, stacked, quick)

        def refine(order: int, own: Any, sums: jax.Array, boxes: Box) -> Box:
            return _refine(own if stacked else prior, sums, origin, boxes, order, stacked)

        # The quick search compiles and runs in a fraction of the thorough one, which straightens
        # correlated parameters and takes over where more nodes do not settle the digits.
        boxes = search(True, prior, sums, None)
        if boxes.low.shape[-1] == 0:
            return boxes
        first, *more = _MORE[boxes.low.shape[-1]]
        boxes = improve(partial(refine, first), boxes)
        boxes = improve(partial(search, False), boxes)
        for order in more:
            boxes = improve(partial(refine, order), boxes)
        return boxes

    def realised_size(self, state: Box, num_samples: int) -> int:
        """Return the number of nodes for each parameter that this batch needs."""
        return int(np.asarray(state.order).max())

    def box(self, prior: Prior, sums: jax.Array, origin: jax.Array, quick: bool) -> Box:
        """Locate the posterior of one data set and compare rules on it."""
        low, high = (jnp.asarray(end, sums.dtype) for end in _ranges(prior))
        if low.size == 0:
            none = jnp.zeros(0)
            one = jnp.ones((), int)
            return Box(low, high, none, jnp.zeros((0, 0)), one, none, none, jnp.zeros(()))
        none, unit = jnp.zeros_like(low), jnp.eye(low.size, dtype=low.dtype)
        plain = _log_target(prior, sums, origin, none, unit)
        if quick:
            left, right, peak = track_box(plain, low, high)
            return self._compared(prior, sums, origin, left, right, peak, unit)
        peak, shear, *start = find_peak(plain, low, high)

        def window(shear: jax.Array) -> Window:
            target = _log_target(prior, sums, origin, peak, shear)
            return find_window(target, low, high, peak, (start[0], start[1]))

        if low.size == 1:
            shear, found = unit, window(unit)
        else:
            # Straightening helps where parameters are correlated, and harms at hard ends.
            both = jax.vmap(window)(jnp.stack([unit, shear]))
            better = _second_is_better(both)
            shear = jnp.where(better, shear, unit)
            found = jax.tree.map(lambda leaf: jnp.where(better, leaf[1], leaf[0]), both)
        return self._compared(prior, sums, origin, found.low, found.high, peak, shear)

    @staticmethod
    def _compared(prior: Prior, sums: jax.Array, origin: jax.Array, *where: jax.Array) -> Box:
        """Return the box with low, high, peak and shear ``where``, and what the rules say of it."""
        low, high, peak, shear = where
        order = jnp.asarray(_COMPARED[-1])
        box = Box(low, high, peak, shear, order, jnp.zeros(0), jnp.zeros(0), jnp.zeros(()))
        (least, first, second), closed = _evidence(prior, sums, origin, box, _COMPARED)
        gap = _gap(first, second)
        return box._replace(evidence=second, gap=gap, error=_error(gap, _gap(least, first), closed))

    def stated_error(self, state: Box) -> jax.Array:
        return state.error

    def realise(
        self, prior: Prior, state: Box, sums: jax.Array, origin: jax.Array, num_samples: int
    ) -> Draws:
        """Return the nodes; ``num_samples`` is the number of nodes for each parameter."""
        if state.low.size == 0:
            params, _ = walk(prior, lambda name, d: None)
            return Draws(jax.tree.map(lambda v: v[None], params), jnp.zeros(1), jnp.zeros(1))
        axes, log_rule = _rule(state.low, state.high, num_samples)
        mesh = jnp.stack(jnp.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
        params, log_prior, log_jacobian = jax.vmap(partial(_unsheared, prior, *state[2:4]))(mesh)
        return Draws(params, log_prior, log_prior + log_jacobian + log_rule.ravel())

    def mode(self, prior: Prior, state: Box, sums: jax.Array, origin: jax.Array) -> dict[str, Any]:
        """Return the parameters at which prior density times likelihood is largest."""
        if state.low.size == 0:
            return walk(prior, lambda name, d: None)[0]
        target = _log_target(prior, sums, origin, state.peak, state.shear, jacobian=False)
        best = maximise(target, state.low, state.high)
        return _unsheared(prior, state.peak, state.shear, best)[0]

    def posterior_draws(
        self,
        prior: Prior,
        state: Box,
        sums: jax.Array,
        origin: jax.Array,
        num_samples: int,
    ) -> Draws:
        """Draw a cell of the rule by its weight and a point within it, reweighted exactly."""
        if state.low.size == 0:
            return self.realise(prior, state, sums, origin, 1)
        m = _COMPARED[-1]
        axes, log_rule = _rule(state.low, state.high, m)
        target = _log_target(prior, sums, origin, state.peak, state.shear)
        values = grid_values(target, axes)
        log_mass, _ = normalise_log_weights((values + log_rule).ravel())
        # A tenth of the mass evenly over cells keeps the weights bounded.
        log_mass = jnp.logaddexp(log_mass + jnp.log(0.9), jnp.log(0.1 / log_mass.size))
        cells, inside = jax.random.split(jax.random.key(0))
        cumulative = jnp.cumsum(jnp.exp(log_mass))
        u = jax.random.uniform(cells, (num_samples,), cumulative.dtype) * cumulative[-1]
        chosen = jnp.clip(jnp.searchsorted(cumulative, u), 0, log_mass.size - 1)
        index = jnp.stack(jnp.unravel_index(chosen, values.shape), axis=-1)
        weights = jnp.asarray(np.polynomial.legendre.leggauss(m)[1]) / 2
        left = jnp.cumsum(weights) - weights
        jitter = jax.random.uniform(inside, index.shape, state.low.dtype)
        t = state.low + (state.high - state.low) * (left[index] + weights[index] * jitter)
        params, log_prior, log_jacobian = jax.vmap(partial(_unsheared, prior, *state[2:4]))(t)
        log_volume = log_rule.ravel()[chosen]
        log_base = log_prior + log_jacobian - (log_mass[chosen] - log_volume)
        return Draws(params, log_prior, log_base - jnp.log(float(num_samples)))


def _improve_rough(step: Any, prior: Prior | None, sums: jax.Array, boxes: Box) -> Box:
    """Apply ``step(prior, sums, boxes)`` to the data sets that have not reached the tolerance.

    A new box is kept where its error is smaller. ``prior`` is None unless each has its own.
    """
    rough = np.flatnonzero(np.asarray(boxes.error) > _TOLERANCE)
    if rough.size == 0:
        return boxes
    # So many at a time that batches share compilations.
    rows = np.pad(rough, (0, (1 << (rough.size - 1).bit_length()) - rough.size), mode="edge")
    old = jax.tree.map(np.array, boxes)
    own = jax.tree.map(lambda leaf: np.asarray(leaf)[rows], (prior, sums, old))
    new = jax.tree.map(np.asarray, step(*jax.device_put(own)))
    for i, row in enumerate(rough):
        if new.error[i] < old.error[row]:
            for old_leaf, new_leaf in zip(old, new, strict=True):
                old_leaf[row] = new_leaf[i]
    return jax.device_put(old)


@partial(jax.jit, static_argnums=(0, 4, 5))
def _find_boxes(
    integrator: Quadrature,
    prior: Prior,
    sums: jax.Array,
    origin: jax.Array,
    stacked: bool,
    quick: bool,
) -> Box:
    return integrator.batched(
        lambda p, s: integrator.box(p, s, origin, quick), prior, sums, stacked
    )


@partial(jax.jit, static_argnums=(4, 5))
def _refine(
    prior: Prior, sums: jax.Array, origin: jax.Array, boxes: Box, order: int, stacked: bool
) -> Box:
    """Apply a rule of more nodes to the same boxes."""

    def one(item: Any) -> Box:
        own, sums, box = item
        (evidence,), closed = _evidence(own if stacked else prior, sums, origin, box, (order,))
        gap = _gap(box.evidence, evidence)
        return box._replace(
            order=jnp.full_like(box.order, order),
            evidence=evidence,
            gap=gap,
            error=_error(gap, box.gap, closed),
        )

    rows = max(1, (1 << 18) // order ** boxes.low.shape[-1])
    return jax.lax.map(one, (prior if stacked else None, sums, boxes), batch_size=rows)
