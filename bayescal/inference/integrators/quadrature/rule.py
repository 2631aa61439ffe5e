"""The integrator by Gauss-Legendre quadrature, for up to three scalar parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias

import numpy as np

from bayescal._core.arrays import Params
from bayescal._core.lazy import jax, jnp
from bayescal._core.numerics import normalize_log_weights
from bayescal._core.shapes import Bool, Float, Int
from bayescal.inference.engine.averages import WeightedDraws
from bayescal.inference.engine.space import random_sites
from bayescal.inference.integrators.base import (
    Fields,
    Integrator,
    PerSet,
    Problem,
    equal_base,
    map_data_sets,
)
from bayescal.inference.integrators.quadrature.box import (
    Box,
    BoxCoordinates,
    estimate_error,
    find_evidence,
    log_target,
    open_ends,
    product_rule,
    ranges,
    relative_gap,
    stretched,
    unsheared,
)
from bayescal.inference.integrators.quadrature.track import track_box
from bayescal.inference.integrators.quadrature.window import (
    Window,
    at_points,
    find_peak,
    find_window,
    grid_values,
    maximize,
)
from bayescal.models import Prior

#: Arrays by their axes.
Vector: TypeAlias = 'Float[jax.Array, " parameters"]'

#: Nodes for each parameter of the three rules that are compared.
_COMPARED = (32, 40, 48)
#: Nodes for each of 1, 2 or 3 parameters if those disagree.
_MORE = {1: (64, 128, 256, 512, 1024, 2048), 2: (64, 128, 256, 512), 3: (64, 96)}
_TOLERANCE = 1e-10
#: Number of nodes of a rule from which data sets that need fewer nodes get a smaller rule.
_MAX_COMMON_NODES = 1 << 16

#: Distance from the peak, in steps that cost a nat, from which stretched coordinates grow wide.
_STRETCH = 4.0
#: A peak this many nats above all nodes of a rule lies between them, or outside the box.
_MISSED = 3.0
#: Errors above which points far from the data are searched again, and coordinates are stretched.
_ROUGH, _FAILED = 1e-6, 1e-4

#: A quick search, one that checks whether it missed the peak, which compiles to twice as much, a
#: thorough one, or a thorough one in stretched coordinates.
Search: TypeAlias = Literal["quick", "checked", "thorough", "stretched"]
#: A function of a problem and of the boxes of its data sets, which returns better boxes.
_Step: TypeAlias = Callable[[Problem, Box], Box]


def _second_is_better(windows: Window) -> Bool[jax.Array, ""]:
    """Choose the box that its grid resolves, else the box with more mass, else the smaller box."""
    volume = jnp.prod(windows.high - windows.low, axis=1)
    resolved = windows.points > 2.5 ** windows.low.shape[1]
    more = windows.mass[1] - windows.mass[0]
    by_mass = jnp.where(jnp.abs(more) > 0.01, more > 0, volume[1] < volume[0])
    return jnp.where(resolved[0] == resolved[1], by_mass, resolved[1])


class Quadrature(Integrator[Box]):
    """A product Gauss-Legendre rule on the box that holds the posterior.

    Grids that close in on the posterior locate the box, in coordinates that suit each prior's
    support: cubic on an interval, a hyperbolic sine on the line, its exponential on a half line.
    The rule has 48 nodes for each parameter, and more if rules of 32, 40 and 48 nodes disagree
    about the evidence or about the density of one more observation. Work is O(48**d * points).
    """

    name = "quadrature"
    weighted = False

    def check(self, prior: Prior) -> None:
        sites = random_sites(prior)
        vectors = [site.name for site in sites if site.shape != ()]
        if len(sites) > 3 or vectors:
            got = f"vectors {', '.join(vectors)}" if vectors else f"{len(sites)} parameters"
            raise ValueError(
                f"integrator='quadrature' takes up to three scalar parameters, got {got}; "
                "use 'montecarlo', 'importance' or 'nuts', or fix some parameters"
            )
        ranges(prior)

    def prepare(self, problem: Problem, key: jax.Array, num_samples: int, per_set: Fields) -> Box:
        # The quick search compiles and runs in a fraction of the time of the thorough search, which
        # straightens correlated parameters. That one follows if more nodes do not bring
        # convergence, and stretched coordinates follow if it fails: they help if the posterior is
        # far wider elsewhere than at its peak.
        boxes = _find_boxes(problem.bare, per_set, "quick")
        if boxes.low.shape[-1] == 0:
            return boxes

        def refine(boxes: Box, orders: tuple[int, ...]) -> Box:
            for order in orders:
                step = partial(_refine, order, per_set)
                boxes = _improve_rough(step, problem.bare, per_set, boxes)
            return boxes

        orders = _MORE[boxes.low.shape[-1]]
        boxes = refine(boxes, orders[:1])
        boxes = _search_again(problem, per_set, boxes, "thorough", _TOLERANCE)
        boxes = refine(boxes, orders[1:])
        if (np.asarray(boxes.error) <= _FAILED).all():
            return boxes
        return refine(_search_again(problem, per_set, boxes, "stretched", _FAILED), orders)

    def realized_size(self, state: Box, num_samples: int) -> int:
        """Return the number of nodes for each parameter that this batch needs."""
        return int(np.asarray(state.order).max())

    def sizes_per_data_set(self, state: Box) -> Int[np.ndarray, " sets"] | None:
        order = np.asarray(state.order)
        return order if order.max() ** state.low.shape[-1] > _MAX_COMMON_NODES else None

    def reported(self, state: Box) -> tuple[PerSet, PerSet]:
        return np.asarray(state.evidence)[:, 0], np.asarray(state.error)

    def find(self, problem: Problem[Box], per_set: Fields) -> tuple[PerSet, PerSet]:
        """Compute log evidences (batch,) and their errors; search quickly where that suffices."""
        boxes = _find_boxes(problem.bare, per_set, "checked")
        if boxes.low.shape[-1]:
            boxes = _search_again(problem, per_set, boxes, "thorough", _ROUGH)
            boxes = _search_again(problem, per_set, boxes, "stretched", _ROUGH)
        return self.reported(boxes)

    def outermost(self, problem: Problem[Box], num_samples: int) -> Bool[jax.Array, " nodes"]:
        """Mark the nodes at an end of the box beyond which the support continues."""
        return open_ends(problem.prior, problem.state, num_samples)

    def realize(self, problem: Problem[Box], num_samples: int) -> WeightedDraws:
        """Return the nodes; ``num_samples`` is the number of nodes for each parameter."""
        state = problem.state
        axes, log_rule = product_rule(state.low, state.high, num_samples)
        columns = [column.ravel() for column in jnp.meshgrid(*axes, indexing="ij")]
        density = partial(unsheared, problem.prior, state.coordinates)
        params, log_prior, log_jacobian = at_points(density, columns)
        return WeightedDraws(params, log_prior, log_prior + log_jacobian + log_rule.ravel())

    def mode(self, problem: Problem[Box]) -> Params:
        """Return the parameters at which prior density times likelihood is largest."""
        low, high, coordinates = problem.state[:3]
        target = log_target(problem, coordinates, jacobian=False)
        best = maximize(target, low, high) if low.size else low
        return unsheared(problem.prior, coordinates, best)[0]

    def posterior_draws(
        self, problem: Problem[Box], key: jax.Array, num_samples: int
    ) -> WeightedDraws:
        """Draw a cell of the rule by its weight and a point within it, reweighted exactly."""
        state = problem.state
        if state.low.size == 0:
            # Without random parameters, class probabilities may vary: every draw is paired with
            # one.
            params, _, _ = self.realize(problem, 1)
            params = jax.tree.map(lambda v: jnp.repeat(v, num_samples, axis=0), params)
            return WeightedDraws(params, jnp.zeros(num_samples), equal_base(num_samples))
        m = _COMPARED[-1]
        axes, log_rule = product_rule(state.low, state.high, m)
        values = grid_values(log_target(problem, state.coordinates), axes)
        log_mass, _ = normalize_log_weights((values + log_rule).ravel())
        # Spreading a tenth of the mass evenly over the cells keeps the weights bounded.
        log_mass = jnp.logaddexp(log_mass + jnp.log(0.9), jnp.log(0.1 / log_mass.size))
        cells, inside = jax.random.split(key)
        cumulative = jnp.cumsum(jnp.exp(log_mass))
        u = jax.random.uniform(cells, (num_samples,), cumulative.dtype) * cumulative[-1]
        chosen = jnp.clip(jnp.searchsorted(cumulative, u), 0, log_mass.size - 1)
        index = jnp.stack(jnp.unravel_index(chosen, values.shape), axis=-1)
        weights = jnp.asarray(np.polynomial.legendre.leggauss(m)[1]) / 2
        left = jnp.cumsum(weights) - weights
        jitter = jax.random.uniform(inside, index.shape, state.low.dtype)
        t = state.low + (state.high - state.low) * (left[index] + weights[index] * jitter)
        density = partial(unsheared, problem.prior, state.coordinates)
        params, log_prior, log_jacobian = at_points(density, list(t.T))
        log_volume = log_rule.ravel()[chosen]
        log_base = log_prior + log_jacobian - (log_mass[chosen] - log_volume)
        return WeightedDraws(params, log_prior, log_base - jnp.log(float(num_samples)))


def _improve_rough(
    step: _Step, problem: Problem, per_set: Fields, boxes: Box, most: float = _TOLERANCE
) -> Box:
    """Replace the boxes of the data sets whose errors exceed ``most`` by those of ``step``."""
    rough = np.flatnonzero(np.asarray(boxes.error) > most)
    if rough.size == 0:
        return boxes
    # Padding to a power of two lets batches share compiled programs.
    rows = np.pad(rough, (0, (1 << (rough.size - 1).bit_length()) - rough.size), mode="edge")
    old = jax.tree.map(np.array, boxes)
    own, common = problem.divide(("sums", *per_set))
    part, rough_boxes = jax.device_put(
        jax.tree.map(lambda leaf: np.asarray(leaf)[rows], (own, old))
    )
    new = step(part.join(common), rough_boxes)
    for old_leaf, new_leaf in zip(*map(jax.tree.leaves, (old, new)), strict=True):
        old_leaf[rough] = np.asarray(new_leaf)[: rough.size]
    return jax.device_put(old)


def _search_again(
    problem: Problem, per_set: Fields, boxes: Box, search: Search, most: float
) -> Box:
    """Search again for the boxes whose errors exceed ``most``."""
    if search == "stretched" and (np.asarray(boxes.error) > most).any():
        endless = jnp.full_like(boxes.low, jnp.inf)
        boxes = boxes._replace(coordinates=boxes.coordinates._replace(stretch=endless))

    def again(problem: Problem, old: Box) -> Box:
        new = jax.tree.map(np.asarray, _find_boxes(problem, per_set, search))
        better = np.flatnonzero(new.error < np.asarray(old.error))
        kept = jax.tree.map(np.array, old)
        for kept_leaf, new_leaf in zip(*map(jax.tree.leaves, (kept, new)), strict=True):
            kept_leaf[better] = new_leaf[better]
        return kept

    return _improve_rough(again, problem.bare, per_set, boxes, most)


@partial(jax.jit, static_argnums=(1, 2))
def _find_boxes(problem: Problem, per_set: Fields, search: Search) -> Box:
    # Grids over three parameters fill the processor's cache, and searches side by side all run as
    # long as the slowest of them.
    prior = problem.prior
    first = jax.tree.map(lambda leaf: leaf[0], prior) if "prior" in per_set else prior
    rows = 16 if len(ranges(first)[0]) < 3 else 1
    return map_data_sets(partial(_find_box, search), problem, per_set, rows)


def _find_box(search: Search, problem: Problem) -> Box:
    """Locate the posterior of one data set and compare rules on its box.

    The error is infinite if the checked search missed the peak.
    """
    low, high = (jnp.asarray(end, problem.sums.dtype) for end in ranges(problem.prior))
    if low.size == 0:
        none, zero = jnp.zeros(0), jnp.zeros(())
        fixed = BoxCoordinates(none, jnp.zeros((0, 0)), None)
        evidence = log_target(problem, fixed)(none)[None]
        return Box(low, high, fixed, jnp.ones((), int), evidence, none, zero)
    unit = jnp.eye(low.size, dtype=low.dtype)
    plain = log_target(problem, BoxCoordinates(jnp.zeros_like(low), unit, None))
    if search in ("quick", "checked"):
        left, right, peak = track_box(plain, low, high)
        box, top = _compare(problem, left, right, BoxCoordinates(peak, unit, None))
        if search == "quick" or low.size == 1:
            return box
        height = find_peak(plain, low, high)[1]
        return box._replace(error=jnp.where(height > top + _MISSED, jnp.inf, box.error))
    peak, height, shear, scale, *start = find_peak(plain, low, high)
    stretch = _STRETCH * scale if search == "stretched" else None
    first, last, *start = (stretched(end, peak, stretch) for end in (low, high, *start))

    def window(shear: Float[jax.Array, "parameters parameters"]) -> Window:
        target = log_target(problem, BoxCoordinates(peak, shear, stretch))
        return find_window(target, first, last, peak, height, (start[0], start[1]))

    if low.size == 1:
        shear, found = unit, window(unit)
    else:
        # Straightening helps if parameters are correlated, and harms at the ends of supports.
        both = jax.vmap(window)(jnp.stack([unit, shear]))
        better = _second_is_better(both)
        shear = jnp.where(better, shear, unit)
        found = jax.tree.map(lambda leaf: jnp.where(better, leaf[1], leaf[0]), both)
    return _compare(problem, found.low, found.high, BoxCoordinates(peak, shear, stretch))[0]


def _compare(
    problem: Problem, low: Vector, high: Vector, coordinates: BoxCoordinates
) -> tuple[Box, Float[jax.Array, ""]]:
    """Make the box with these ends and coordinates, and compare rules on it.

    Returns also the largest log density at the nodes of the finest rule.
    """
    order, unknown = jnp.asarray(_COMPARED[-1]), (jnp.zeros(0), jnp.zeros(0), jnp.zeros(()))
    box = Box(low, high, coordinates, order, *unknown)
    (least, first, second), closed, top = find_evidence(problem, box, _COMPARED)
    gap = relative_gap(first, second)
    error = estimate_error(gap, relative_gap(least, first), closed)
    return box._replace(evidence=second, gap=gap, error=error), top


@partial(jax.jit, static_argnums=(0, 1))
def _refine(order: int, per_set: Fields, problem: Problem, boxes: Box) -> Box:
    """Apply a rule with more nodes to the same boxes.

    It replaces the coarser rule if its error is smaller, or if the difference between them is
    larger than the error of the coarser one, which was small by accident.
    """
    own, common = problem.divide(("sums", *per_set))

    def refine(item: tuple[Problem, Box]) -> Box:
        part, box = item
        (evidence,), closed, _ = find_evidence(part.join(common), box, (order,))
        gap = relative_gap(box.evidence, evidence)
        # More nodes in a box that missed the peak prove nothing.
        error = jnp.where(jnp.isinf(box.error), jnp.inf, estimate_error(gap, box.gap, closed))
        order_ = jnp.full_like(box.order, order)
        new = box._replace(order=order_, evidence=evidence, gap=gap, error=error)
        refuted = jnp.max(gap) > jnp.maximum(box.error, _ROUGH)
        # The order is reached if other data sets are searched again.
        better = (box.order < order) & ((error < box.error) | refuted)
        return jax.tree.map(lambda new, old: jnp.where(better, new, old), new, box)

    rows = max(1, (1 << 18) // order ** boxes.low.shape[-1])
    return jax.lax.map(refine, (own, boxes), batch_size=rows)
