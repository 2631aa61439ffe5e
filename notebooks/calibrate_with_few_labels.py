# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # How do I get probabilities from scores and a few labels?
#
# A classifier gives each case a score. You would like a probability. If you have thousands of
# labelled cases, almost any method turns the one into the other. If you have six, or fifty, it
# matters what you knew beforehand, and how you use it.
#
# This notebook shows the main job of `bayescal`: write down what you know as a *generative model*
# with a *prior*, condition it on labelled scores, and predict, with honest uncertainty.
#
# It needs about a minute on a laptop.

# %%
import time
import warnings

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from scipy.special import expit
from scipy.stats import norm

import bayescal as bc
from bayescal.datasets import synthetic
from bayescal.metrics import log_loss
from bayescal.plots import curve, reliability

plt.rcParams.update({"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False})
GREY, BLUE, ORANGE = "0.35", "#0072B2", "#D55E00"

# %% [markdown]
# ## The generative model
#
# Suppose scores of class 0 scatter around a mean $\mu_0$ and scores of class 1 around $\mu_1$, both
# normally and with the same standard deviation $\sigma$:
#
# $$x \mid y = 0 \sim N(\mu_0, \sigma^2), \qquad x \mid y = 1 \sim N(\mu_1, \sigma^2).$$
#
# If you knew the three numbers, Bayes' rule would give the best possible probability. It is a
# logistic curve:
#
# $$f^*(x) = \mathrm{sigmoid}(a x + b), \qquad a = \frac{\mu_1 - \mu_0}{\sigma^2}, \qquad
# b = \frac{\mu_0^2 - \mu_1^2}{2 \sigma^2}$$
#
# (for classes that are equally likely; otherwise add $\log(\pi_1 / \pi_0)$ to $b$). This is why
# logistic calibration works as often as it does. Here is a world in which we know the truth.

# %%
MU0, MU1, SIGMA = -0.8, 1.2, 1.0
rng = np.random.default_rng(1)


def draw_scores(n):
    """Draw a balanced data set of n scores with labels."""
    labels = np.repeat([0, 1], n // 2)
    return rng.normal(np.where(labels == 1, MU1, MU0), SIGMA), labels


def true_curve(x):
    """Return the probability of class 1 that the truth implies."""
    return expit(norm.logpdf(x, MU1, SIGMA) - norm.logpdf(x, MU0, SIGMA))


grid = np.linspace(-4, 4, 121)
scores, labels = draw_scores(50)

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
for label, mu, color in ((0, MU0, BLUE), (1, MU1, ORANGE)):
    left.plot(grid, norm.pdf(grid, mu, SIGMA), color=color)
    left.fill_between(grid, norm.pdf(grid, mu, SIGMA), color=color, alpha=0.15, linewidth=0)
    mine = scores[labels == label]
    left.plot(mine, np.full(len(mine), -0.03 - 0.025 * label), "|", color=color, markersize=9)
    left.text(mu, 0.42, f"class {label}", color=color, ha="center")
left.set(xlabel="Score", ylabel="Density", ylim=(-0.08, 0.47), title="Two classes, 50 scores")
curve(grid, true_curve(grid), ax=right, label="true curve")
right.set(xlabel="Score", ylabel="Probability of class 1", title="The best possible prediction")
plt.show()

# %% [markdown]
# ## A prior, data, and predictions
#
# We do not know the means. What we do know may be vague: class 0 has its mean somewhere in
# $[-2.5, 0]$, class 1 in $[0, 2.5]$, and scores scatter with a standard deviation of 1. Any
# NumPyro distribution can be a prior, and a plain number is a parameter that is known.

# %%
prior = bc.GaussianPrior(mu0=dist.Uniform(-2.5, 0), mu1=dist.Uniform(0, 2.5), sigma=1.0)

result = bc.posterior_predict(prior, (scores, labels), [-1.0, 0.0, 1.0], class_prior=0.5, key=0)
result.probs

# %% [markdown]
# That is all. Half of all cases are of class 1, which we know, and say as `class_prior`. Left out,
# it is estimated from the labels, with a uniform prior of its own.
#
# If you predict often from the same data, condition once and keep the posterior.
# `interval` says how far the curve itself is still uncertain: with posterior probability 0.9 the
# curve of the true parameters lies between its ends at that score.

# %%
post = bc.posterior(prior, (scores, labels), key=0, class_prior=0.5)
post

# %%
prediction = post.predict(grid)
ax = curve(grid, prediction.probs, *prediction.interval(0.9), label="predictive, 90 % band")
ax.plot(grid, true_curve(grid), color=GREY, linestyle=":", label="true curve")
ax.plot(scores, labels, "|", color=GREY, alpha=0.6)
ax.legend(frameon=False, loc="center right")
ax.set_title("Posterior from 50 scores")
plt.show()

# %% [markdown]
# ## Four methods
#
# Behind the scenes there are parameters $\theta_1, \theta_2, \dots$ drawn from the prior, each with
# a weight $w_i$ proportional to how likely it makes the data, $p(D \mid \theta_i)$. There is more
# than one way to get one curve out of many.
#
# - `"predictive"`, the default: average the densities, then apply Bayes' rule. For equally likely
#   classes $\sum_i w_i\, p(x \mid 1, \theta_i) \big/ \sum_y \sum_i w_i\, p(x \mid y, \theta_i)$.
# - `"preds"`: average the curves, $\sum_i w_i\, f^*(x; \theta_i)$.
# - `"coeffs"`: average the coefficients, $\mathrm{sigmoid}(\sum_i w_i a_i\, x + \sum_i w_i b_i)$;
#   this stays a logistic curve.
# - `"map"`: take the single most probable $\theta$.
#
# The last three follow Maher (2020), with the weights corrected as the last section explains. With
# much data all four agree. With little, `coeffs` and `map` are too sure of themselves: they have
# forgotten how uncertain $\theta$ is. `preds` has not, but far out it is not sure enough. Why,
# and which is right, we shall see below.

# %%
few, few_labels = draw_scores(6)
methods = ("predictive", "preds", "coeffs", "map")

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
post_few = bc.posterior(prior, (few, few_labels), integrator="quadrature", class_prior=0.5)
reference = np.asarray(post_few.predict(grid).log_odds)
for method in methods:
    found = post_few.predict(grid, method=method)
    curve(grid, found.probs, ax=left, label=method)
    curve(grid, np.asarray(found.log_odds) - reference, ax=right)
left.plot(few, few_labels, "|", color="black", markersize=12)
left.set(xlabel="Score", ylabel="Probability of class 1", title="Six scores, four methods")
left.get_legend().remove()
right.set(xlabel="Score", ylabel="Log odds less those of predictive", title="Where they part")
fig.legend(loc="outside right center", frameon=False)
plt.show()

# %% [markdown]
# The same in numbers: the largest gap between each method and `predictive` on scores from -4 to 4.

# %%
gaps = {}
for n in (6, 50, 200, 1000):
    post_n = bc.posterior(prior, draw_scores(n), integrator="quadrature", class_prior=0.5)
    best = np.asarray(post_n.predict(grid).probs)
    gaps[n] = {
        method: np.abs(np.asarray(post_n.predict(grid, method=method).probs) - best).max()
        for method in methods[1:]
    }
pd.DataFrame(gaps).rename_axis(columns="n").round(4)

# %% [markdown]
# ## What the prior does
#
# Sweep it. Four priors, $\mu_0 \sim U(-w, 0)$ and $\mu_1 \sim U(0, w)$, with widths from far too
# sure to very vague; four sizes of data. These are 16 posteriors, and one call: a list of priors
# with a list of data sets, of any sizes.

# %%
widths, sizes = (0.5, 1.5, 2.5, 10.0), (6, 20, 50, 200)
data_of = {n: draw_scores(n) for n in sizes}
pairs = [(w, n) for w in widths for n in sizes]
priors = [bc.GaussianPrior(dist.Uniform(-w, 0.0), dist.Uniform(0.0, w), 1.0) for w, _ in pairs]

swept = bc.posterior(
    priors,
    [data_of[n] for _, n in pairs],
    integrator="quadrature",
    class_prior=0.5,
    num_samples=10_000,  # for the bands; the rule itself does not sample
)
probs = swept.predict(grid)
lower, upper = probs.interval(0.9)

fig, axes = plt.subplots(
    len(widths), len(sizes), figsize=(9, 8), sharex=True, sharey=True, layout="constrained"
)
for i, (ax, (w, n)) in enumerate(zip(axes.flat, pairs, strict=True)):
    curve(grid, probs.probs[i], lower[i], upper[i], ax=ax, label="predictive, 90 % band")
    ax.get_legend().remove()
    ax.plot(grid, true_curve(grid), color="black", linestyle=":", label="true curve")
    ax.plot(*data_of[n], "|", color=GREY, alpha=0.5, markersize=5)
    if w == widths[0]:
        ax.set_title(f"n = {n}")
    if n == sizes[0]:
        ax.set_ylabel(f"width {w:g}\n\nP(class 1)")
for ax in axes[-1]:
    ax.set_xlabel("Score")
handles = axes[0, 0].get_legend_handles_labels()
fig.legend(*handles, loc="outside upper center", ncols=2, frameon=False)
plt.show()

# %% [markdown]
# - **Width 0.5** excludes the truth ($\mu_0 = -0.8$, $\mu_1 = 1.2$). Its band is narrow and wrong,
#   and data cannot repair it: what a prior rules out stays ruled out.
# - **Widths 1.5 and 2.5** contain the truth. The band holds the true curve, as far as a 90 % band
#   promises, and closes in on it.
# - **Width 10** says little. With six scores the band is wider for it, with 50 it hardly matters.
#
# Which prior do the data prefer? `log_evidence` is $\log p(D \mid \text{prior})$; differences of 5
# are overwhelming.

# %%
evidence = np.reshape(swept.log_evidence, (len(widths), len(sizes)))
pd.DataFrame(
    evidence - evidence.max(axis=0),
    index=pd.Index(widths, name="width"),
    columns=pd.Index(sizes, name="n"),
).round(1)

# %% [markdown]
# ## A thousand data sets in one call
#
# Whether a method works is seen over many data sets, each with a truth of its own. A batch has the
# shapes `(data sets, n)`; it is one compiled computation, and every data set gets the same numbers
# that it would get alone. `synthetic.sample` draws the truths from the prior, too.

# %%
train = synthetic.sample(prior, 1000, 50, key=1)
test = synthetic.sample(prior, 1000, 100, parameters=train.parameters, key=2)

start = time.perf_counter()
batch = bc.posterior(prior, (train.x, train.y), integrator="quadrature", class_prior=0.5)
probs = np.asarray(batch.predict(test.x).probs)
seconds = time.perf_counter() - start
print(f"{probs.size:,} predictions from {len(probs):,} posteriors")
print(f"{seconds:.1f} s, compiling included")

# %%
true = {name: value[:, None] for name, value in test.parameters.items()}
best = expit(
    norm.logpdf(test.x, true["mu1"], true["sigma"])
    - norm.logpdf(test.x, true["mu0"], true["sigma"])
)
print(f"mean log loss               {log_loss(probs.ravel(), test.y.ravel()):.4f}")
print(f"had one known all the means {log_loss(best.ravel(), test.y.ravel()):.4f}")

ax = reliability(probs.ravel(), test.y.ravel(), bins=15)
ax.set_title("1,000 data sets of 50")
plt.show()

# %% [markdown]
# Averaged over the prior the predictions are calibrated, as they must be: the marker of each bin
# lies on the diagonal. What the log loss is above the optimum's is the price of having to learn two
# means from 50 scores. (`synthetic.bayes_optimal_log_loss` gives the optimum's expectation.)
#
# ## Can I trust the sampling?
#
# By default the integrals are sums over 100,000 draws from the prior. That is robust, and it comes
# with its own warning lights:
#
# - `ess`, the effective number of draws after weighting; want at least 100;
# - `pareto_k`, how heavy the weights' tail is; above 0.7 a few draws decide everything;
# - `mcse`, the standard error of each predicted probability, and how far it may move in the tails.
#
# A model with up to three unknown parameters can also be integrated by `"quadrature"`, to about ten
# digits, which lets us check. Here $\sigma$ is unknown too.

# %%
wide = bc.GaussianPrior(dist.Uniform(-2.5, 0), dist.Uniform(0, 2.5), dist.HalfNormal(2.0))
points = np.linspace(-4, 4, 41)


def check(data, integrators, **options):
    """Compare integrators with quadrature."""
    rule = bc.posterior(wide, data, integrator="quadrature", class_prior=0.5)
    exact = np.asarray(rule.predict(points).probs)
    rows = {}
    for integrator in integrators:
        start = time.perf_counter()
        post = bc.posterior(wide, data, integrator=integrator, class_prior=0.5, **options)
        found = post.predict(points)
        rows[integrator] = {
            "ESS": f"{post.ess:,.0f}",
            "Pareto k": f"{post.pareto_k:.2f}",
            "largest MCSE": f"{found.mcse.max():.1e}",
            "largest error": f"{np.abs(np.asarray(found.probs) - exact).max():.1e}",
            "seconds": f"{time.perf_counter() - start:.1f}",
        }
    return pd.DataFrame(rows).T


check((scores, labels), ["montecarlo", "sobol", "importance"])

# %% [markdown]
# The errors are about as large as `mcse` announces, and the seconds include compiling. Sobol points
# fill the space more evenly than random ones, and adaptive importance sampling draws where the
# posterior is.
#
# Now 20,000 scores. The posterior is a tiny spot in the prior, and plain draws hardly hit it. The
# library notices, and says what to do.

# %%
many = draw_scores(20_000)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    missed = bc.posterior(wide, many, key=0)
print(f"{caught[0].category.__name__}: {caught[0].message}")

# %%
check(many, ["importance"])

# %% [markdown]
# Adaptive importance sampling first moves its draws to the posterior, in a few rounds. It costs
# the same for 20,000 scores as for 50, because the likelihood needs only each class's count, sum
# and sum of squares.
#
# ## Looking at the posterior with ArviZ
#
# `to_arviz` hands over equally weighted draws, with the prior's beside them.

# %%
post = bc.posterior(wide, (scores, labels), integrator="importance", key=0)
idata = post.to_arviz(num_draws=4000)
az.summary(idata)

# %%
if int(az.__version__.split(".")[0]) >= 1:
    az.plot_dist(idata, backend="matplotlib", figure_kwargs={"figsize": (9, 2.6)})
else:
    az.plot_posterior(idata, figsize=(9, 2.6), textsize=9)
plt.show()

# %% [markdown]
# The draws come from a resample, so `r_hat` and the effective sizes of this table judge the
# resampling only. `post.ess` and `post.pareto_k` judge the weights.
#
# ## Why `predictive` and not `preds`
#
# Averaging the curves, $\sum_i w_i f^*(x; \theta_i)$, looks like what a Bayesian should do. It
# would be, if the new score told nothing about $\theta$. But $x$ was drawn from
# $p(x \mid y, \theta)$ as well: a score of 3 is itself evidence that the means lie far out. The
# rules of probability put the densities, not the curves, under the average:
#
# $$P(y = 1 \mid x, D) = \frac{\pi_1\, p(x \mid 1, D)}{\sum_y \pi_y\, p(x \mid y, D)}, \qquad
# p(x \mid y, D) = \sum_i w_i\, p(x \mid y, \theta_i).$$
#
# The gap is small, but it has a sign. With six scores per data set, and the expected log loss of
# each curve integrated over all possible test scores, so that the only noise left is the choice of
# 1,024 data sets:

# %%
small = synthetic.sample(prior, 1024, 6, key=3)
post_small = bc.posterior(prior, (small.x, small.y), integrator="quadrature", class_prior=0.5)

x = np.linspace(-9, 9, 128)  # the trapezoidal rule is exact to many digits here
means = np.stack([small.parameters["mu0"], small.parameters["mu1"]])
joint = 0.5 * norm.pdf(x, means[..., None], 1.0) * (x[1] - x[0])

losses = {}
for method in methods:
    log_odds = np.asarray(post_small.predict(x, method=method).log_odds, np.float64)
    in_class = np.stack([np.logaddexp(0, log_odds), np.logaddexp(0, -log_odds)])
    losses[method] = (joint * in_class).sum(axis=(0, 2))

rows = {}
for method in methods:
    excess = losses[method] - losses["predictive"]
    rows[method] = {
        "expected log loss": f"{losses[method].mean():.4f}",
        "more than predictive": f"{excess.mean():.5f}",
        "standard error": f"{excess.std() / np.sqrt(len(excess)):.5f}",
    }
pd.DataFrame(rows).T

# %% [markdown]
# `predictive` is ahead of `preds` by several standard errors, of `coeffs` by ten times as much, and
# of `map` by thirty.
#
# ## Why the weights do not contain the prior again
#
# The draws come *from the prior*. Where the prior is high there are more of them, and this is how
# it has its say. A recipe that multiplies the weights by the prior density as well,
# $w_i \propto p(D \mid \theta_i)\, p(\theta_i)$, lets it speak twice. To see the damage, take a
# normal prior, for which the right answer is a formula.

# %%
belief = {"mu0": dist.Normal(0.0, 1.0), "mu1": dist.Normal(0.0, 1.0)}
six = np.array([-1.6, -0.7, -1.1, 1.3, 2.2, 1.9]), np.array([0, 0, 0, 1, 1, 1])
post_six = bc.posterior(bc.GaussianPrior(**belief, sigma=1.0), six, key=0)

# Conjugate: precision 1 of the prior, 1 of each of the three scores of class 1.
exact_mean, exact_sd = six[0][3:].sum() / (1 + 3), (1 + 3) ** -0.5

draws = {name: np.asarray(value) for name, value in post_six.draws().items()}
weights = np.exp(np.asarray(post_six.log_weights()))
twice = weights * np.exp(sum(np.asarray(belief[name].log_prob(draws[name])) for name in belief))
twice /= twice.sum()

bins = np.linspace(-1, 3.5, 61)
fig, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
for name, w, color in (
    ("weights of bayescal", weights, BLUE),
    ("prior counted twice", twice, ORANGE),
):
    ax.hist(draws["mu1"], bins, weights=w, density=True, color=color, alpha=0.35, label=name)
ax.plot(bins, norm.pdf(bins, exact_mean, exact_sd), color="black", label="exact posterior")
ax.plot(bins, norm.pdf(bins, 0, 1), color=GREY, linestyle=":", label="prior")
ax.set(xlabel=r"$\mu_1$", ylabel="Density", title="Three scores of class 1, with mean 1.8")
ax.legend(frameon=False)
plt.show()


def moments(w):
    """Return the weighted mean and deviation of the draws of mu1."""
    mean = w @ draws["mu1"]
    return mean, np.sqrt(w @ (draws["mu1"] - mean) ** 2)


pd.DataFrame(
    {
        "exact": (exact_mean, exact_sd),
        "weights of bayescal": moments(weights),
        "prior counted twice": moments(twice),
    },
    index=["mean of μ1", "deviation of μ1"],
).round(3)

# %% [markdown]
# Counting twice pulls the mean towards the prior's, and claims more certainty than the data give.
# With a uniform prior the mistake would go unnoticed, as its density is constant.
#
# ## In short
#
# - Say what you know as a prior: `bc.GaussianPrior(mu0=..., mu1=..., sigma=...)`.
# - `bc.posterior_predict(prior, (scores, labels), new_scores)` predicts; the default method is the
#   optimal one.
# - `integrator="quadrature"` is exact for up to three parameters; `"importance"` is the choice for
#   more parameters or much data; watch `ess` and `pareto_k`, which warn by themselves.
# - Batches cost one call, so sweep priors, sizes and truths before you rely on one.
# - Left out, `class_prior` is estimated from the labels. Say it where you know it, and where the
#   data to learn from were balanced on purpose: `class_prior=0.1`.
