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
# A classifier gives each case a score, and you want a probability. With thousands of labeled cases,
# almost any method converts one into the other. With six or fifty labels, it matters what you knew
# beforehand and how you use it.
#
# This notebook shows how to write down what you know as a *generative model* with a *prior*, how to
# condition it on labeled scores, and how to predict with credible intervals. It takes about a
# minute on a laptop.

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
GRAY, BLUE, ORANGE = "0.35", "#0072B2", "#D55E00"

# %% [markdown]
# ## The generative model
#
# Suppose that the scores of class 0 scatter around a mean $\mu_0$ and those of class 1 around
# $\mu_1$, both normally and with the same standard deviation $\sigma$:
#
# $$x \mid y = 0 \sim N(\mu_0, \sigma^2), \qquad x \mid y = 1 \sim N(\mu_1, \sigma^2).$$
#
# If you knew the three numbers, Bayes' rule would give the best possible probability. It is a
# logistic curve:
#
# $$f^*(x) = \mathrm{sigmoid}(a x + b), \qquad a = \frac{\mu_1 - \mu_0}{\sigma^2}, \qquad
# b = \frac{\mu_0^2 - \mu_1^2}{2 \sigma^2}$$
#
# (for equally frequent classes; otherwise add $\log(\pi_1 / \pi_0)$ to $b$). This is why logistic
# calibration so often works. Here is an example with a known truth.

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
    in_class = scores[labels == label]
    left.plot(
        in_class, np.full(len(in_class), -0.03 - 0.025 * label), "|", color=color, markersize=9
    )
    left.text(mu, 0.42, f"class {label}", color=color, ha="center")
left.set(xlabel="Score", ylabel="Density", ylim=(-0.08, 0.47), title="Two classes, 50 scores")
curve(grid, true_curve(grid), ax=right, label="true curve")
right.set(xlabel="Score", ylabel="Probability of class 1", title="The best possible prediction")
plt.show()

# %% [markdown]
# ## A prior, data, and predictions
#
# We do not know the means. What we know may be vague: the mean of class 0 is somewhere in $[-2.5,
# 0]$, that of class 1 in $[0, 2.5]$, and scores have a standard deviation of 1. Any NumPyro
# distribution can be a prior, and a number is a known parameter.

# %%
prior = bc.GaussianPrior(mu0=dist.Uniform(-2.5, 0), mu1=dist.Uniform(0, 2.5), sigma=1.0)

result = bc.posterior_predict(prior, (scores, labels), [-1.0, 0.0, 1.0], class_prior=0.5, key=0)
result.probs

# %% [markdown]
# That is all. We know that half of the cases belong to class 1, and pass this as `class_prior`.
# Without it, the class frequency is estimated from the labels, with a uniform prior.
#
# If you predict often from the same data, condition once and keep the posterior. `interval` returns
# the remaining uncertainty of the curve: with posterior probability 0.9, the curve of the true
# parameters lies between its ends at that score.

# %%
post = bc.posterior(prior, (scores, labels), key=0, class_prior=0.5)
post

# %%
prediction = post.predict(grid)
ax = curve(grid, prediction.probs, *prediction.interval(0.9), label="predictive, 90 % band")
ax.plot(grid, true_curve(grid), color=GRAY, linestyle=":", label="true curve")
ax.plot(scores, labels, "|", color=GRAY, alpha=0.6)
ax.legend(frameon=False, loc="center right")
ax.set_title("Posterior from 50 scores")
plt.show()

# %% [markdown]
# ## Four methods
#
# Internally, parameters $\theta_1, \theta_2, \dots$ are drawn from the prior. Each has a weight
# $w_i$ proportional to the likelihood of the data, $p(D \mid \theta_i)$. There is more than one way
# to combine many curves into one.
#
# - `"predictive"`, the default, averages the densities and then applies Bayes' rule. For equally
#   likely classes this is $\sum_i w_i\, p(x \mid 1, \theta_i) \big/ \sum_y \sum_i w_i\, p(x \mid
#   y, \theta_i)$.
# - `"preds"` averages the curves, $\sum_i w_i\, f^*(x; \theta_i)$.
# - `"coeffs"` averages the coefficients, $\mathrm{sigmoid}(\sum_i w_i a_i\, x + \sum_i w_i b_i)$;
#   this is again a logistic curve.
# - `"map"` uses the single most probable $\theta$.
#
# The last three follow Maher (2020), with corrected weights (see the last section). With many
# labels all four agree. With few, `coeffs` and `map` are over-confident, because they ignore the
# uncertainty of $\theta$. `preds` does not ignore it, but is under-confident far from the data. The
# section on `predictive` and `preds` explains why, and which is right.

# %%
few, few_labels = draw_scores(6)
methods = ("predictive", "preds", "coeffs", "map")

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
post_few = bc.posterior(prior, (few, few_labels), integrator="quadrature", class_prior=0.5)
reference = np.asarray(post_few.predict(grid).log_odds)
for method in methods:
    prediction = post_few.predict(grid, method=method)
    curve(grid, prediction.probs, ax=left, label=method)
    curve(grid, np.asarray(prediction.log_odds) - reference, ax=right)
left.plot(few, few_labels, "|", color="black", markersize=12)
left.set(xlabel="Score", ylabel="Probability of class 1", title="Six scores, four methods")
left.get_legend().remove()
right.set(xlabel="Score", ylabel="Log odds less those of predictive", title="Where they part")
fig.legend(loc="outside right center", frameon=False)
plt.show()

# %% [markdown]
# The table shows the largest difference between each method and `predictive` for scores from -4 to
# 4.

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
# We vary it. There are four priors, $\mu_0 \sim U(-w, 0)$ and $\mu_1 \sim U(0, w)$, with widths
# from far too narrow to very vague, and four sizes of data. These are 16 posteriors, and one call:
# a list of priors with a list of data sets of any sizes.

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
    ax.plot(*data_of[n], "|", color=GRAY, alpha=0.5, markersize=5)
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
# - **Width 0.5** excludes the truth ($\mu_0 = -0.8$, $\mu_1 = 1.2$). Its band is narrow and
#   wrong, and data cannot repair it: what a prior rules out stays ruled out.
# - **Widths 1.5 and 2.5** contain the truth. The band contains the true curve, as often as a 90 %
#   band promises, and narrows around it.
# - **Width 10** says little. With six scores its band is wider; with 50 it hardly matters.
#
# Which prior do the data support? `log_evidence` is $\log p(D \mid \text{prior})$; differences of 5
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
# To judge a method you need many data sets, each with a different truth. A batch has the shape
# `(data sets, n)` and is one compiled computation. Every data set gets the same numbers as it would
# alone. `synthetic.sample` also draws the truths from the prior.

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
# Averaged over the prior the predictions are calibrated, as they must be: the marker of each bin is
# on the diagonal. The difference of the log loss from that of the optimum is the cost of learning
# two means from 50 scores. (`synthetic.bayes_optimal_log_loss` computes the expectation of the
# optimum.)
#
# ## Can I trust the sampling?
#
# By default the integrals are sums over 100,000 draws from the prior. This is robust, and it comes
# with diagnostics:
#
# - `ess` is the effective number of draws after weighting. It should be at least 100.
# - `pareto_k` measures the tail of the weights. Above 0.7, a few draws dominate the result.
# - `mcse` is the standard error of each predicted probability.
#
# A model with up to three unknown parameters can also be integrated by `"quadrature"`, to about ten
# digits, which lets us check the sampling. Here $\sigma$ is unknown as well.

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
        prediction = post.predict(points)
        rows[integrator] = {
            "ESS": f"{post.ess:,.0f}",
            "Pareto k": f"{post.pareto_k:.2f}",
            "largest MCSE": f"{prediction.mcse.max():.1e}",
            "largest error": f"{np.abs(np.asarray(prediction.probs) - exact).max():.1e}",
            "seconds": f"{time.perf_counter() - start:.1f}",
        }
    return pd.DataFrame(rows).T


check((scores, labels), ["montecarlo", "sobol", "importance"])

# %% [markdown]
# The errors are about as large as `mcse` says. The seconds include compilation. Sobol points fill
# the space more evenly than random ones, and adaptive importance sampling draws where the posterior
# is.
#
# Now take 20,000 scores. The posterior is tiny compared with the prior, and plain draws hardly hit
# it. The library notices, and names an alternative.

# %%
many = draw_scores(20_000)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    missed = bc.posterior(wide, many, key=0)
print(f"{caught[0].category.__name__}: {caught[0].message}")

# %%
check(many, ["importance"])

# %% [markdown]
# Adaptive importance sampling first moves its draws to the posterior, in a few rounds. It costs the
# same for 20,000 scores as for 50, because the likelihood needs only the count, the sum and the sum
# of squares of each class.
#
# ## The posterior in ArviZ
#
# `to_arviz` returns equally weighted draws of the posterior, together with draws of the prior.

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
# The draws are resampled, so `r_hat` and the effective sample sizes in this table judge only the
# resampling. `post.ess` and `post.pareto_k` judge the weights.
#
# ## Why `predictive` and not `preds`
#
# Averaging the curves, $\sum_i w_i f^*(x; \theta_i)$, looks like the Bayesian answer. It would be,
# if the new score said nothing about $\theta$. But $x$ was also drawn from $p(x \mid y, \theta)$: a
# score of 3 is itself evidence that the means lie far out. By the rules of probability, the average
# is over the densities, not over the curves:
#
# $$P(y = 1 \mid x, D) = \frac{\pi_1\, p(x \mid 1, D)}{\sum_y \pi_y\, p(x \mid y, D)}, \qquad
# p(x \mid y, D) = \sum_i w_i\, p(x \mid y, \theta_i).$$
#
# The difference is small, but systematic. We use six scores in each data set, and integrate the
# expected log loss of each curve over all possible test scores. The only remaining noise is the
# choice of 1,024 data sets:

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
# `predictive` is better than `preds` by several standard errors, than `coeffs` by ten times as
# much, and than `map` by thirty times as much.
#
# ## Why the weights do not contain the prior again
#
# The draws come *from the prior*. There are more of them where the prior is high, and so the prior
# is already taken into account. A recipe that also multiplies the weights by the prior density,
# $w_i \propto p(D \mid \theta_i)\, p(\theta_i)$, counts it twice. To see the effect, take a normal
# prior, for which the right answer is a formula.

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
ax.plot(bins, norm.pdf(bins, 0, 1), color=GRAY, linestyle=":", label="prior")
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
# Counting the prior twice pulls the mean toward that of the prior, and claims more certainty than
# the data justify. With a uniform prior the mistake has no effect, because the density is constant.
#
# ## Summary
#
# - Write what you know as a prior: `bc.GaussianPrior(mu0=..., mu1=..., sigma=...)`.
# - `bc.posterior_predict(prior, (scores, labels), new_scores)` predicts. The default method is
#   optimal.
# - `integrator="quadrature"` is exact for up to three parameters. Use `"importance"` for more
#   parameters or many labels. Warnings tell you when `ess` or `pareto_k` are bad.
# - Batches cost one call, so vary priors, sizes and truths before you rely on one.
# - Without `class_prior`, the class frequency is estimated from the labels. Pass it if you know
#   it, and if the training data were balanced on purpose: `class_prior=0.1`.
