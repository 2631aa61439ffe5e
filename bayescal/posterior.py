"""The entry functions ``posterior`` and ``posterior_predict`` for known generative models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.execution.padding import pad_axis
from bayescal._core.execution.precision import float64
from bayescal._core.keywords import other_words
from bayescal._core.lazy import jax
from bayescal._core.random.keys import Seed, as_key
from bayescal._core.warnings import AccuracyWarning, SamplingWarning, warn
from bayescal.data import checks
from bayescal.data.label_names import match_columns
from bayescal.data.labels import code_labels
from bayescal.inference import (
    INTEGRATORS,
    BatchLayout,
    Fields,
    Problem,
    Setup,
    Summary,
    condition_all,
    make_class_prior,
    padded_batch,
    pareto_k,
    read_class_prior,
)
from bayescal.inference.prediction import ROUGH_RULE, Prediction
from bayescal.inference.result import METHODS, Posterior
from bayescal.models import Family, Prior
from bayescal.models.prior import fit_shapes, stack_priors, widen

if TYPE_CHECKING:
    from numpyro.distributions import Distribution

__all__ = ["posterior", "posterior_predict"]

_MIN_EFFECTIVE_DRAWS = 100
_MAX_PARETO_K = 0.7
#: Fraction of effective draws above which a large k is a false alarm: a tail that makes averages
#: unreliable leaves far fewer.
_SAFE_EFFECTIVE_FRACTION = 1 / 3
#: Largest relative rounding error of the squared scores of a data set.
_MAX_LOST = 1e-10
#: Largest R-hat, and largest fraction of divergent steps, of chains that agree.
_MAX_R_HAT, _MAX_DIVERGENT_FRACTION = 1.05, 0.01


@other_words
def posterior(
    prior: Prior | Sequence[Prior] | Mapping[str, Prior],
    data: checks.Data,
    *,
    integrator: str = "montecarlo",
    num_samples: int = 100_000,
    class_prior: ArrayLike | Distribution | None = None,
    key: Seed = 0,
) -> Posterior:
    r"""Condition a generative model on labeled data; the result predicts at any number of points.

    Use it to predict several times from the same data, or to inspect the posterior of the
    parameters. For a single prediction :func:`posterior_predict` is shorter.

    Parameters
    ----------
    prior : Prior, list of Prior, or mapping from names to Prior
        A family of class-conditional densities with a prior over its parameters, such as
        ``GaussianPrior``. A mapping is a grid of priors: each prior is conditioned on the data (on
        each data set of a batch) in one compiled call, and results have a leading axis of priors. A
        list holds one prior for each data set of a batch. The priors of a grid or list must differ
        only in their numbers.
    data : tuple or list
        ``(x, y)``: scores of shape (n,), or features (n, d) for a multivariate family, and labels
        (n,) in {0, 1} (or {0, ..., k - 1}). A batch of data sets is ``(x, y)`` or ``(x, y, mask)``
        with shapes (batch, n[, d]) and (batch, n), or a list of tuples ``(x, y)`` of any sizes.
        Columns of later data frames with the names of the first one may have any order, as may
        those of probabilities that are named like the classes.
        A class may be missing; its parameters then keep their prior. Labels may also be -1 and 1,
        text or dates: sorted, all of them together are the classes 0, ..., k - 1.
    integrator : str
        ``"montecarlo"``: draws from the prior, weighted by their likelihood;
        ``"sobol"``: scrambled Sobol points of the prior, weighted by their likelihood;
        ``"importance"``: draws from a proposal adapted to the posterior;
        ``"quadrature"``: Gauss rules for up to three scalar parameters, accurate to ten digits
        where that is possible, see ``Posterior.quadrature_error``;
        ``"nuts"``: NumPyro's sampler; ``"closed_form"``: a conjugate prior's formulas.
    num_samples : int
        Number of draws. Quadrature uses it only for credible intervals.
    class_prior : float, array of shape (k,) or NumPyro distribution, optional
        Probability of class 1, or of every class, in the population to predict for. By default it
        is estimated from the labels under a uniform prior, Beta(1, 1) or Dirichlet(1, ..., 1). A
        ``Beta`` or ``Dirichlet`` of ``numpyro.distributions`` replaces that prior. A number is a
        known probability: pass 0.5 if the training labels were balanced by design and the
        population to predict for is also balanced. A dictionary or a series by class may have any
        order.
    key : int, JAX key or NumPy generator
        Seed of the draws. A data set gets the same draws alone and in a batch, except with
        ``"nuts"``, whose chains have a seed for each data set.

    Returns
    -------
    Posterior
        Its attributes and methods include ``predict``, ``log_evidence``, ``ess``, ``pareto_k``,
        ``r_hat``, ``draws`` and ``to_arviz``.

    Raises
    ------
    TypeError, ValueError
        If labels lie outside {0, 1}, values are NaN or infinite, shapes do not match, data are
        empty, ``class_prior`` is outside (0, 1), or the data are impossible under the prior.

    Warns
    -----
    SamplingWarning
        If the effective sample size is below 100; if Pareto-k is above 0.7 and less than a third
        of the draws are effective; or if R-hat of chains is above 1.05 or more than 1 % of their
        steps diverge.
    AccuracyWarning
        If a quadrature rule did not converge to 1e-6.

    See Also
    --------
    posterior_predict : Condition and predict in one call.
    StackedScaling, Beta, Auto : Calibrators for scores whose generative model is unknown.

    Notes
    -----
    Draws :math:`\theta_i` from the prior have the weights
    :math:`w_i \propto p(D \mid \theta_i)`; draws from a proposal q have
    :math:`w_i \propto p(D \mid \theta_i) p(\theta_i) / q(\theta_i)`. Weights are normalized to sum
    to one. The likelihood needs only sums of features over each class, so the cost per draw does
    not grow with n: O(n + num_samples).

    Estimated class probabilities :math:`\pi` have, given the labels, a Dirichlet posterior with
    concentrations :math:`1 + n_y`, independent of :math:`\theta`. ``predictive`` needs only its
    mean :math:`(1 + n_y) / (k + n)`; ``coeffs`` needs the mean of :math:`\log \pi_y`; ``map`` uses
    its mode as a density of the log odds between classes, which is the mean. ``preds`` and
    ``interval`` average over it: every draw of :math:`\theta` is paired with a draw of :math:`\pi`.
    Quadrature uses Gauss nodes for two classes (accurate to 1e-12 if both have five labels, to 1e-8
    for a single label in all, and to 1e-7 for concentrations below one) and 512 quasi-random points
    for more classes, whose error ``mcse`` includes. The evidence is the density of the scores given
    the labels.

    The data sets of a batch are split over the devices of a process if their padded number divides
    evenly. In a computation of several processes (after ``jax.distributed.initialize``), all
    processes must call ``posterior`` and ``predict`` in the same order with the same arguments.
    Each process computes its part of the data sets, and all return the whole result, equal to that
    of one process to about 1e-13 in double precision (with ``"nuts"``, chains may magnify the
    difference). Modes, draws, errors and intervals are computed by the process that asks for them.
    An error in one process is a RuntimeError in the others, and arguments that differ are a
    ValueError. If a process dies, JAX ends the others; they wait for the slowest process as long as
    JAX's collectives do: half an hour on CPUs. Within ``jax.default_device(...)`` a process works
    alone on its data. A single data set is computed by every process.

    References
    ----------
    M. Maher (2020), Instance-based label smoothing for better classifier calibration, section 4.

    Examples
    --------
    >>> import numpy as np
    >>> import numpyro.distributions as dist
    >>> import bayescal as bc
    >>> prior = bc.GaussianPrior(mu0=dist.Uniform(-2.5, 0), mu1=dist.Uniform(0, 2.5), sigma=1.0)
    >>> scores = np.array([-1.3, -0.2, -0.9, 0.4, 1.6, 0.8])
    >>> labels = np.array([0, 0, 0, 1, 1, 1])
    >>> post = bc.posterior(prior, (scores, labels), integrator="quadrature")
    >>> print(f"{post.log_evidence:.4f}")
    -7.4366
    >>> print(np.round(post.predict([-1.0, 0.0, 1.0]).probs, 4))
    [0.1716 0.4802 0.8069]
    """
    rule = INTEGRATORS[checks.check_choice(integrator, "integrator", tuple(INTEGRATORS))]
    num_samples = rule.sample_size(checks.check_count(num_samples, "num_samples"))
    priors, stacked = _check_prior(prior)
    names = tuple(checks.check_names(prior, "prior")) if isinstance(prior, Mapping) else None
    family = priors[0].family
    data, classes = code_labels(data, family.classes)
    given = checks.check_data(data, family.univariate, family.classes)
    if family.of_classes and given.names and (order := match_columns(given.names, classes, "x")):
        given = given._replace(x=given.x[..., order], names=[given.names[j] for j in order])
    family.check_support(given.x[given.mask], "x")
    if stacked and names is None and (given.single or len(priors) != len(given.x)):
        got = "one data set" if given.single else f"{len(given.x)} data sets"
        raise ValueError(
            f"a list of {len(priors)} priors must come with as many data sets: {got}; a dict of "
            "priors by name combines each prior with each data set"
        )
    layout = BatchLayout(names, given)
    batch, repeats = layout.flat(), 1 if names is None else len(given.x)
    estimated, class_probs = read_class_prior(class_prior, classes)
    dim = 1 if family.univariate else batch.x.shape[-1]
    sums, origin, per_set = _summarize(family, given)
    sums = layout.spread(sums)
    origin = layout.spread(origin) if per_set else origin
    with float64():
        shaped = [widen(fit_shapes(p, dim)) for p in priors]
        for candidate in shaped if names is not None else shaped[:1]:
            rule.check(candidate)
        shaped = [candidate for candidate in shaped for _ in range(repeats)]
        count = len(sums)
        # Each padded entry of a grid would cost a posterior with its own draws.
        small_grid = names is not None and count <= 64
        padded = count if small_grid else padded_batch(rule, count)
        use = stack_priors(shaped + shaped[-1:] * (padded - count)) if stacked else shaped[0]
        sums = jax.device_put(pad_axis(sums, padded, 0))
        origin = jax.device_put(pad_axis(origin, padded, 0) if per_set else origin)
        per_set += ("prior",) if stacked else ()
        seed = as_key(key)
        by_rule = rule.name == "quadrature"
        population = make_class_prior(estimated, class_probs, batch, padded, seed, by_rule)
        problem: Problem = Problem(use, sums, origin, population, None)
        setup, numbers = Setup(rule, num_samples, per_set), jax.tree.leaves(shaped)
        arguments = batch, numbers, estimated, class_probs, seed, integrator, num_samples
        setup, work, summary = condition_all(setup, problem, count, seed, arguments)
    if rule.weighted:
        summary = summary._replace(pareto_k=pareto_k(summary.pareto_k))
    _check_integration(setup, summary, layout)
    if ends := rule.at_ends(shaped[0], work.problem.state):
        warn(
            f"the posterior of {', '.join(ends)} lies at an end of the prior's support, and so "
            "seems improper: scores of a class may be equal; use a prior with less density there, "
            "such as InverseGamma or LogNormal for sigma",
            SamplingWarning,
        )
    known = priors if stacked else priors[0]
    if names is not None:
        known = dict(zip(names, priors, strict=True))
    return Posterior(known, layout, setup, work, summary, num_samples, classes)


@other_words
def posterior_predict(
    prior: Prior | Sequence[Prior] | Mapping[str, Prior],
    data: checks.Data,
    x: ArrayLike | None = None,
    *,
    method: str = "predictive",
    integrator: str = "montecarlo",
    num_samples: int = 100_000,
    class_prior: ArrayLike | Distribution | None = None,
    key: Seed = 0,
) -> Prediction:
    r"""Predict optimally from a known generative model and labeled data.

    Conditions the model on the data and averages its predictions over the posterior of its
    parameters. Equal to ``posterior(prior, data, ...).predict(x, method=method)``.

    Parameters
    ----------
    prior : Prior, list of Prior, or mapping from names to Prior
        Family of class-conditional densities with a prior over its parameters, such as
        ``GaussianPrior``; a mapping is a grid of priors. See ``posterior``.
    data : tuple or list
        Scores (n,) or features (n, d) and labels (n,), or a batch of them; see ``posterior``.
    x : array of shape (m,) or (m, d), optional
        Points at which to predict; for a batch also (batch, m[, d]), one row of points for each
        data set. By default the training points.
    method : str
        ``"predictive"``: the posterior predictive
        :math:`\pi_1 \sum_i w_i p(x \mid 1, \theta_i) / \sum_y \pi_y \sum_i w_i p(x \mid y,
        \theta_i)`, which is optimal;
        ``"preds"``: the average :math:`\sum_i w_i f^*(x; \theta_i)` of optimal models;
        ``"coeffs"``: the optimal model at the average coefficients;
        ``"map"``: the optimal model at the parameters with the highest posterior density.
    integrator : str
        ``"montecarlo"``, ``"sobol"``, ``"importance"``, ``"quadrature"``, ``"nuts"`` or
        ``"closed_form"``; see ``posterior``.
    num_samples : int
        Number of draws.
    class_prior : float, array of shape (k,) or NumPyro distribution, optional
        Probability of class 1, or of every class, in the population to predict for, or a ``Beta``
        or ``Dirichlet`` prior of it; by default estimated from the labels. See ``posterior``.
    key : int, JAX key or NumPy generator
        Seed of the draws.

    Returns
    -------
    Prediction
        Its attributes and methods include ``probs``, ``log_odds``, ``mcse``, ``interval(level)``,
        ``ess``, ``pareto_k``, ``log_evidence``, ``draws``, ``log_weights`` and ``to_arviz()``.

    Raises
    ------
    TypeError, ValueError
        If ``posterior`` would raise, or ``x`` has a wrong shape or number of features.

    See Also
    --------
    posterior : Condition once and predict several times.

    Notes
    -----
    Work is O(num_samples * points), streamed in blocks. For 512 and more univariate points the log
    odds are computed at 129 or more nodes and interpolated, with an error below 1e-6 in probability
    (see ``Prediction.interpolation_error``). Several processes share the data sets of a batch; see
    ``posterior``.

    Examples
    --------
    >>> import numpy as np
    >>> import numpyro.distributions as dist
    >>> import bayescal as bc
    >>> prior = bc.GaussianPrior(mu0=dist.Normal(-1, 1), mu1=dist.Normal(1, 1), sigma=1.0)
    >>> scores, labels = np.array([-1.3, -0.2, 0.4, 1.6]), np.array([0, 0, 1, 1])
    >>> result = bc.posterior_predict(prior, (scores, labels), [-1.0, 1.0], key=0)
    >>> print(np.round(result.probs, 1))
    [0.2 0.8]
    """
    checks.check_choice(method, "method", METHODS)
    checks.check_untraced(x, "x")
    post = posterior(
        prior,
        data,
        integrator=integrator,
        num_samples=num_samples,
        class_prior=class_prior,
        key=key,
    )
    return post.predict(x, method=method)


def _check_prior(prior: object) -> tuple[list[Prior], bool]:
    """Return the priors as a list, and whether the user passed several of them."""
    if isinstance(prior, Prior):
        return [prior], False
    many = list(prior.values()) if isinstance(prior, Mapping) else prior
    if isinstance(many, (list, tuple)) and many:
        stack_priors(many)
        return list(many), True
    raise TypeError(
        "prior must be a prior such as GaussianPrior(...), or a list or dict of them, got "
        f"{type(prior).__name__}"
    )


def _summarize(family: Family, batch: checks.Batch) -> tuple[np.ndarray, np.ndarray, Fields]:
    """Return the sums of the features of each data set, and the origin of the features.

    If data sets are far from each other, every one has an origin, and the third value says so.
    """
    x, y, mask = batch[:3]
    if type(family).origin is Family.origin or _are_near(batch):
        origin = family.origin(x, mask)
        return _class_sums(family, batch, origin), origin, ()
    parts = [checks.Batch(x[b][None], y[b][None], mask[b][None], True) for b in range(len(x))]
    origins = [family.origin(part.x, part.mask) for part in parts]
    sums = [_class_sums(family, part, at) for part, at in zip(parts, origins, strict=True)]
    return np.concatenate(sums), np.stack(origins), ("origin",)


def _class_sums(family: Family, batch: checks.Batch, origin: np.ndarray) -> np.ndarray:
    """Return the sums (batch, classes, p) of the features over each class, in float64."""
    phi = family.features(batch.x, origin, np)
    member = (batch.y[..., None] == np.arange(family.classes)) & batch.mask[..., None]
    return np.einsum("bnk,bnp->bkp", member.astype(np.float64), phi, optimize=True)


def _are_near(batch: checks.Batch) -> bool:
    """Whether squared distances from the mean of all data sets keep their digits."""
    mask = batch.mask.reshape(*batch.mask.shape, *[1] * (batch.x.ndim - 2))
    x = np.where(mask, batch.x - batch.x[batch.mask].mean(axis=0), 0.0)
    count = mask.sum(axis=1)
    mean = x.sum(axis=1) / count
    spread = np.where(mask, (x - mean[:, None]) ** 2, 0.0).sum(axis=1) / count
    # Single or equal scores have no spread; it may be that of other data sets.
    spread = np.where(spread > 0, spread, spread.mean(axis=0))
    return bool((np.finfo(float).eps * mean**2 <= _MAX_LOST * spread).all())


def _check_integration(setup: Setup, summary: Summary[np.ndarray], layout: BatchLayout) -> None:
    """Raise if the prior excludes the data; warn if the integration is unreliable."""
    rule, size = setup.integrator, setup.size
    impossible = np.flatnonzero(np.isneginf(summary.log_evidence))
    if impossible.size:
        where = f" ({layout.label(int(impossible[0]))})" if layout.dims else ""
        raise ValueError(
            f"the prior must allow the data, but every weight is zero{where}: none of its "
            "parameters is valid or gives the data a positive density; check its support"
        )
    error = summary.quadrature_error
    if (error >= ROUGH_RULE).any():
        warn(
            f"quadrature may be off by a relative {np.max(error):.1g}: the posterior is too rough "
            f"for {size} nodes per parameter; use integrator='importance' or 'nuts'",
            AccuracyWarning,
        )
    chains = summary.divergences >= 0
    few = (rule.weighted | chains) & ~(summary.ess >= _MIN_EFFECTIVE_DRAWS)
    heavy = (summary.pareto_k > _MAX_PARETO_K) & (summary.ess < _SAFE_EFFECTIVE_FRACTION * size)
    disagree = ~(summary.r_hat <= _MAX_R_HAT) | (
        summary.divergences > _MAX_DIVERGENT_FRACTION * size
    )
    bad = few | heavy | (chains & disagree)
    if not bad.any():
        return
    worst = int(np.argmin(np.where(bad, np.nan_to_num(summary.ess), np.inf)))
    where = ""
    if layout.dims:
        what = "data sets; the worst" if layout.names is None else "posteriors; the worst"
        who = "" if layout.names is None else f" ({layout.label(worst)})"
        where = f" for {int(bad.sum())} of {len(bad)} {what}{who} has"
    ess = f"effective sample size {summary.ess[worst]:.0f} of {size}"
    if rule.weighted:
        others = "'nuts'" if rule.name == "importance" else "'importance', 'quadrature' or 'nuts'"
        message = (
            f"few draws carry the weight{where}: {ess} and Pareto k {summary.pareto_k[worst]:.2f} "
            f"(want at least {_MIN_EFFECTIVE_DRAWS} and at most {_MAX_PARETO_K}); use "
            f"integrator={others}, or more samples"
        )
    else:
        message = (
            f"the chains do not describe the posterior{where}: {ess}, R-hat "
            f"{summary.r_hat[worst]:.2f} and {summary.divergences[worst]:.0f} divergent steps "
            f"(want at least {_MIN_EFFECTIVE_DRAWS}, at most {_MAX_R_HAT} and at most "
            f"{_MAX_DIVERGENT_FRACTION * size:.0f}): it may have several modes, or be improper; "
            "use integrator='quadrature' (up to three scalar parameters) or a tighter prior, or "
            "more samples"
        )
    warn(message, SamplingWarning)
