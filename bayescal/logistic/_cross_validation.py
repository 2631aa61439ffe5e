"""Choosing a penalty or a smoothing factor by cross-validation, all fits in one compiled call."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayescal.logistic._fit import Fit, as_fit, fit_one, rows_at_once
from bayescal.logistic._objective import Problem


class Grid(NamedTuple):
    """Candidates to choose from, each with a leading axis of candidates.

    Attributes
    ----------
    targets : array of shape (candidates, n), or (1, n) where all share them
    l1, l2 : arrays of shape (candidates,)
    """

    targets: Any
    l1: Any
    l2: Any


class Choice(NamedTuple):
    """What cross-validation found.

    Attributes
    ----------
    losses : array of shape (candidates, folds)
        Mean log loss on the rows held out, in nats; infinite where a fit failed.
    best : integer scalar
        The candidate with the least loss over all rows; the first of equals.
    fit : Fit
        That candidate fitted to all rows, a batch of one.
    """

    losses: jax.Array
    best: jax.Array
    fit: Fit


def stratified_folds(y: np.ndarray, folds: int, seed: int = 0) -> np.ndarray:
    """Return the fold (n,) of each row: shuffled, and classes spread evenly over folds.

    Rows of a class are dealt out in turn, and each class starts where the one before ended, so that
    folds differ by one row at most, for each class and altogether.
    """
    order = np.random.default_rng(seed).permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    fold = np.empty(len(y), int)
    fold[order] = np.arange(len(y)) % folds
    return fold


@partial(jax.jit, static_argnames=("folds", "lasso"))
def choose(
    x: Any,
    y: Any,
    weights: Any,
    fold: Any,
    grid: Grid,
    folds: int,
    lasso: bool = False,
) -> Choice:
    """Fit every candidate without every fold, and the best candidate to everything.

    Parameters
    ----------
    x : array of shape (n, d)
    y : array of shape (n,)
        Labels in {0, 1}, by which the loss on rows held out is measured.
    weights : array of shape (n,)
    fold : integer array of shape (n,)
        Which fold each row belongs to.
    grid : Grid
    folds : int
    lasso : bool
        Whether any candidate has an absolute penalty.

    Notes
    -----
    O(candidates * folds * iterations * n * d**2) work in one ``map`` over the fits, a few at a
    time; x is shared, so memory is O(n * d) for each of these.
    """
    candidates = grid.l1.shape[0]

    def problem(candidate: jax.Array, use: jax.Array) -> Problem:
        row = jnp.minimum(candidate, grid.targets.shape[0] - 1)
        return Problem(x, grid.targets[row], use, grid.l1[candidate], grid.l2[candidate])

    def one(index: jax.Array) -> tuple[jax.Array, jax.Array]:
        candidate, out = index // folds, index % folds
        held = jnp.where(fold == out, weights, 0)
        beta = fit_one(problem(candidate, weights - held), lasso).x
        line = beta[0] + x @ beta[1:]
        loss = jnp.sum(held * (jax.nn.softplus(line) - y * line))
        return jnp.where(jnp.isnan(loss), jnp.inf, loss), jnp.sum(held)

    index = jnp.arange(candidates * folds)
    rows = rows_at_once(candidates * folds, *x.shape)
    losses, held = (v.reshape(-1, folds) for v in jax.lax.map(one, index, batch_size=rows))
    best = jnp.argmin(losses.sum(axis=1))
    found = fit_one(problem(best, weights), lasso)
    fit = as_fit(jax.tree.map(lambda leaf: leaf[None], found))
    return Choice(losses / jnp.where(held > 0, held, 1), best, fit)
