"""Calibration by an average over all rows, weighted by a kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from bayescal._core.arrays import AnyArray, Array, XArray, matmul, namespace, on_host
from bayescal._core.execution.chunks import slices
from bayescal._core.lazy import jax, jnp, special
from bayescal._core.numerics import softmax
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.neighborhood.attention import (
    Keys,
    attend,
    attend_and_sum,
    is_forked,
    prepare_keys,
)
from bayescal.calibrators.neighborhood.base import (
    Assumption,
    Averages,
    DistinctRows,
    NeighborhoodCalibrator,
    crop_floor,
    floored_log,
    merge,
)
from bayescal.data.checks import check_choice
from bayescal.data.given import DEVICE
from bayescal.data.rows import Rows, Source

_CANDIDATES = 1.6 * 2.0 ** np.arange(6, -10, -1)

#: Range of bandwidths; beyond it only the nearest row counts, or all rows count equally.
_SMALLEST, _LARGEST = 1e-12, 1e12
#: Rows that are cross-validated at once, with averages for all bandwidths in memory.
_ROWS = 4096


@dataclass(eq=False, repr=False)
class Kernel(NeighborhoodCalibrator):
    r"""Kernel calibration: subtract a weighted average of the errors of all rows.

    .. math:: \hat c(p) = p - \frac{\sum_i w_i K(p, p_i)\, (p_i - y_i)}{\sum_i w_i K(p, p_i)},

    clipped to :math:`[\varepsilon, 1 - \varepsilon]` and normalized. Factors that depend only on
    the query cancel, so the weights are :math:`\operatorname{softmax}_i(s_i + \ln w_i)`. This is an
    attention layer, whose scores are streamed and never stored.

    ===================  ==========================================  ==============================
    kernel               K                                           score s_i
    ===================  ==========================================  ==============================
    "dirichlet"          Dirichlet density, parameters p / h + 1,    p · ln p_i / h
                         at p_i
    "dirichlet_mixture"  Dirichlet density, parameters p_i / h + 1,  p_i · ln p / h
                         at p: its mode is p_i                       − Σ_c ln Γ(p_ic / h + 1)
    "rbf"                exp(−‖p − p_i‖² / h)                        (2 p · p_i − ‖p_i‖²) / h
    ===================  ==========================================  ==============================

    Parameters
    ----------
    kernel : {"dirichlet", "dirichlet_mixture", "rbf"}
        The default "dirichlet_mixture" reproduces the published figures. Probabilities of zero are
        replaced by the smallest normal float32, 1.2e-38. Near a corner of the simplex, "dirichlet"
        hardly distinguishes rows.
    bandwidth : "cv" or float, default "cv"
        h; larger values average over more rows. With "rbf" it is :math:`1 / \gamma`. "cv" minimizes
        the log loss of ten folds, stratified by class, over 1.6 times the powers of two from
        1.6 / 512 to 102.4; of equally good values the largest.

    Attributes
    ----------
    bandwidth_ : float
        h.

    Notes
    -----
    The state is ``points`` (m, k), the distinct rows of probabilities; ``observed`` (m, k), the
    proportions of the classes among their labels; ``point_weights`` (m,), ``bandwidth`` and
    ``crop``; and after cross-validation ``candidates`` and their mean log losses ``cv_losses``. A
    single row cannot be held out, so its in-sample loss is used.

    Fitting takes O(n**2 k) for each bandwidth, predicting q rows O(q n k); memory is O((n + q) k).
    Exponentials and averages are float32 if JAX runs on an accelerator, which changes probabilities
    by about 1e-6. Scores on an accelerator are cross-validated on device, for all bandwidths in one
    program; the host receives the distinct rows, which are the fitted state.

    References
    ----------
    K. Valk (2022), Calibration of multi-class probabilistic classifiers, University of Tartu,
    section 3.4. C. Ouimet and R. Tolosana-Delgado (2022), Asymptotic properties of Dirichlet kernel
    density estimators.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> bc.Kernel(bandwidth=0.5).fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.71, 0.23, 0.06]]
    """

    kernel: Literal["dirichlet", "dirichlet_mixture", "rbf"] = "dirichlet_mixture"
    bandwidth: Literal["cv"] | float = "cv"
    assumption: Assumption = "errors"
    crop: float | None = None

    bandwidth_: float = field(init=False)

    _sources: ClassVar[frozenset[str]] = DEVICE

    def _check_options(self) -> None:
        check_choice(self.kernel, "kernel", ("dirichlet", "dirichlet_mixture", "rbf"))
        h = self.bandwidth
        number = isinstance(h, (int, float, np.number)) and not isinstance(h, bool)
        if h != "cv" and (not number or not 0 < h < np.inf):
            raise ValueError(f"bandwidth must be 'cv' or a positive number, got {h!r}")
        super()._check_options()

    def _fit(self, rows: Source, seed: int) -> State:
        in_memory = rows.all()

        def held_out(entries: Rows, fold: np.ndarray) -> np.ndarray:
            scores, y, weights = entries
            if not on_host(scores):
                crop = crop_floor(self.crop, scores.shape[1])
                losses = _losses_on_device(self.kernel, self.assumption, *entries, fold, crop)
                return np.asarray(losses)
            values = DistinctRows.of_rows(entries).values(self.assumption)
            # One pass over all pairs of rows, without pairs in one fold.
            keys = _prepare_keys(*self._keys(scores, weights, _CANDIDATES), values, fold)
            total = np.zeros(len(_CANDIDATES))
            for part in slices(len(y), _ROWS):
                averages = attend(self._queries(scores[part]), keys, _CANDIDATES, fold[part])
                total += self._losses(averages, scores[part], y[part], weights[part])
            return total

        return (
            self._choose("bandwidth", _CANDIDATES, in_memory, held_out) | merge(*in_memory).state()
        )

    def _averages(self, state: State, scores: np.ndarray) -> Averages:
        bandwidths = state["bandwidth"].reshape(1)
        # JAX's arrays cannot be used in a forked process, which prepares its own.
        purpose = "keys, forked" if is_forked() else "keys"
        keys = self._computed_once(purpose, state, _keys_of_state)
        for part in slices(len(scores), _ROWS):
            yield part, attend(self._queries(scores[part]), keys, bandwidths)[0].astype(float)

    def _width(self, state: State, scores: XArray) -> int:
        return 2 * state["keys"].shape[0]

    def _precompute(self, state: State) -> State:
        points = DistinctRows.of_state(state)
        bandwidth = np.clip(state["bandwidth"], _SMALLEST, _LARGEST)
        keys, bias = self._keys(points.probabilities, points.weights, bandwidth.reshape(1))
        values = points.values(self.assumption)
        crop = {name: state[name] for name in ("crop", "least_probabilities") if name in state}
        return {"bandwidth": bandwidth, "keys": keys, "bias": bias, "values": values} | crop

    def _apply(self, state: State, scores: XArray) -> XArray:
        products = matmul(self._queries(scores), state["keys"].T) / state["bandwidth"]
        weights = softmax(products + state["bias"])
        return self._calibrated(scores, matmul(weights, state["values"]), state["crop"])

    def _queries(self, scores: XArray) -> AnyArray:
        """Compute queries (m, k), whose products with the keys divided by h are the scores."""
        return floored_log(scores) if self.kernel == "dirichlet_mixture" else scores

    def _keys(
        self, probs: XArray, weights: XArray, bandwidths: np.ndarray
    ) -> tuple[AnyArray, AnyArray]:
        """Compute keys (m, k) and biases (g, m) for all bandwidths, as NumPy or JAX arrays."""
        xp = namespace(probs)
        keys, bias = probs, xp.zeros((len(bandwidths), len(probs)))
        if self.kernel == "dirichlet":
            keys = floored_log(probs)
        elif self.kernel == "rbf":
            keys, bias = 2 * probs, -xp.sum(probs**2, axis=1) / bandwidths[:, None]
        elif on_host(probs):
            from scipy.special import gammaln

            bias = np.stack([-gammaln(probs / h + 1).sum(axis=1) for h in bandwidths])
        else:
            log_gamma = special.gammaln
            bias = jax.lax.map(
                lambda h: -log_gamma(probs / h + 1).sum(axis=1), jnp.asarray(bandwidths)
            )
        return keys, bias + xp.log(weights)


@partial(jax.jit, static_argnums=(0, 1))
def _losses_on_device(
    kernel: Any,
    assumption: Assumption,
    scores: jax.Array,
    y: jax.Array,
    weights: jax.Array,
    folds: jax.Array,
    crop: float,
) -> jax.Array:
    """Compute sums of held-out log losses (g,) of rows for all bandwidths."""
    calibrator = Kernel(kernel, assumption=assumption)
    values = DistinctRows(scores, jnp.eye(scores.shape[1])[y], weights).values(assumption)
    keys = _prepare_keys(*calibrator._keys(scores, weights, _CANDIDATES), values, folds)

    def losses(
        averages: jax.Array, scores: jax.Array, y: jax.Array, weights: jax.Array
    ) -> jax.Array:
        probs = calibrator._calibrated(scores, averages.astype(float), crop)
        return -jnp.log(probs[:, jnp.arange(len(y)), y]) @ weights

    rows = calibrator._queries(scores), folds.astype(np.int32), scores, y, weights
    return attend_and_sum(rows, keys, _CANDIDATES, losses)


def _keys_of_state(state: State) -> Keys:
    return _prepare_keys(*(state[name] for name in ("keys", "bias", "values")))


def _prepare_keys(keys: Array, bias: Array, values: Array, groups: Array | None = None) -> Keys:
    # Accelerators are fast in single precision.
    dtype = np.dtype(np.float64 if jax.default_backend() == "cpu" else np.float32)
    return prepare_keys(keys, bias, values, dtype, groups)
