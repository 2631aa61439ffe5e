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
# # How do I stop a model from being certain?
#
# Twenty scores, ten of each class, and the classes happen not to overlap. Logistic regression then
# knows no bounds: the steeper its curve, the likelier the data, and in the end it is certain of
# everything. The cure is old and simple. Do not fit the labels 0 and 1, fit *targets* that stop a
# little short of them.
#
# This notebook shows three ways of choosing targets, on data whose truth we know, so that every
# curve can be held against the best possible one. It follows section 5 of M. Maher's thesis
# (*Instance-based label smoothing for better classifier calibration*, 2020), and redoes its figures
# 16 to 18. It needs about half a minute.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning

import bayescal as bc
from bayescal.plots import curve
from bayescal.smoothing import instance_targets, platt_targets

plt.rcParams.update({"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False})
BLUE, ORANGE = "#0072B2", "#D55E00"
METHODS = ("normal", "platt", "ibls")

# %% [markdown]
# ## A world with a known answer
#
# Scores of the classes are normal with standard deviation 1 and means $-\mu$ and $\mu$. For classes
# that are equally frequent the probability of class 1 is then exactly $\mathrm{sigmoid}(2 \mu x)$:
# a logistic curve with the slope $2 \mu$. A method that finds another slope is wrong by that much.
#
# The same random numbers serve all four values of $\mu$. So the same data drift apart, until they
# separate.

# %%
MEANS = (0.5, 1.0, 1.5, 2.0)
labels = np.repeat([0, 1], 10)
noise = np.random.default_rng(5).normal(size=20)
data = {mu: noise + mu * (2 * labels - 1) for mu in MEANS}
grid = np.linspace(-4, 4, 161)

for mu, x in data.items():
    gap = x[labels == 1].min() - x[labels == 0].max()
    print(f"mu = {mu}: the classes {'are separated' if gap > 0 else 'overlap'}")

# %% [markdown]
# ## Targets
#
# - `normal`: the labels themselves, $t = 0$ and $t = 1$.
# - `platt`: $t^- = \epsilon^- = 1 / (N^- + 2)$ and $t^+ = 1 - \epsilon^+$ with
#   $\epsilon^+ = 1 / (N^+ + 2)$, where $N^\pm$ count the cases. So one estimates a frequency after
#   $N$ successes in $N$ trials, under a uniform prior.
# - `ibls`, instance-based label smoothing: Platt's $\epsilon$ is the *most* that a label is moved.
#   A score in the midst of its own class is moved by nearly all of it, a score among those of the
#   other class hardly at all:
#
# $$t^+(x) = 1 - \epsilon^+ \frac{f^+(x)}{f^+(x) + f^-(x)}, \qquad
# t^-(x) = \epsilon^- \frac{f^-(x)}{f^+(x) + f^-(x)}.$$
#
# The reason: smoothing is there against over-confidence, and a curve is over-confident where it is
# confident, in the midst of a class. Where classes overlap the curve is modest anyway, and moving
# labels there only flattens it. The thesis gives an example with $\epsilon^+ = 0.1$:

# %%
for f_own, f_other in ((0.7, 0.4), (0.9, 0.05)):
    print(f"densities {f_own} and {f_other}: target {1 - 0.1 * f_own / (f_own + f_other):.3f}")

# %% [markdown]
# The densities $f^\pm$ are kernel estimates from the scores, with Silverman's width. Here they are
# for $\mu = 1$, and below them how far each label is moved: not at all (dots), by Platt's constant
# (crosses), or instance by instance (triangles, on their class's curve
# $\epsilon^\pm f^\pm / (f^+ + f^-)$).

# %%
x = data[1.0]
width = (10 * 3 / 4) ** (-1 / 5) * x.std()
density = [norm.pdf(grid, x[labels == c, None], width).mean(axis=0) for c in (0, 1)]
moved = {
    (".", "normal"): np.zeros(20),
    ("x", "platt"): np.abs(platt_targets(labels) - labels),
    ("^", "ibls"): np.abs(instance_targets(x, labels, scale="pooled") - labels),
}

fig, (top, bottom) = plt.subplots(2, 1, figsize=(7, 5.5), sharex=True, layout="constrained")
for c, color in ((0, BLUE), (1, ORANGE)):
    mine = labels == c
    top.plot(grid, density[c], color=color)
    top.fill_between(grid, density[c], color=color, alpha=0.15, linewidth=0)
    top.plot(x[mine], np.full(10, -0.02 - 0.015 * c), "|", color=color, markersize=9)
    top.text((-2.7, 2.3)[c], 0.25, f"class {c}", color=color, ha="center")
    bottom.plot(grid, density[c] / sum(density) / 12, color=color, alpha=0.3)
    for (marker, method), distance in moved.items():
        style = {"color": color, "linestyle": "none", "fillstyle": "none"}
        bottom.plot(x[mine], distance[mine], marker, **style, label=method if c == 0 else None)
top.set(ylabel="Density", title="Estimated densities of the scores")
bottom.set(xlabel="Score", ylabel="Label moved by", title="Targets")
bottom.legend(frameon=False, loc="center right")
plt.show()

# %% [markdown]
# ## Four curves
#
# Each target gives a curve; `LogisticRegression.preset` knows all three by name.


# %%
def fit(method, x, y):
    """Return slope and intercept, and whether there was an optimum to find."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the status says it
        model = bc.LogisticRegression.preset(method).fit(x[:, None], y)
    return model.coef_[0, 0], model.intercept_[0], model.status_


fits = {(mu, method): fit(method, data[mu], labels) for mu in MEANS for method in METHODS}

fig, axes = plt.subplots(2, 2, figsize=(9, 6), sharex=True, sharey=True, layout="constrained")
for ax, mu in zip(axes.flat, MEANS, strict=True):
    curve(grid, expit(2 * mu * grid), ax=ax, label="optimum")
    for method in METHODS:
        slope, intercept, _ = fits[mu, method]
        curve(grid, expit(slope * grid + intercept), ax=ax, label=method)
    ax.get_legend().remove()
    ax.plot(data[mu], labels, "|", color="black", markersize=10)
    ax.set_title(rf"$\mu$ = {mu}")
for ax in axes[-1]:
    ax.set_xlabel("Score")
for ax in axes[:, 0]:
    ax.set_ylabel("Probability of class 1")
fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
plt.show()

# %%
slopes = {
    mu: {method: fits[mu, method][0] for method in METHODS} | {"optimum": 2 * mu} for mu in MEANS
}
pd.DataFrame(slopes).rename_axis(columns="slope for mu =").round(2)

# %% [markdown]
# While the classes overlap the three curves lie close together, `ibls` between the other two: it
# moves labels less than `platt`. When they separate, `normal` has no optimum. bayescal says so (a
# `ConvergenceWarning`, and `status_ == "unbounded"`) and keeps the last curve, whose slope tells
# nothing but where the iteration stopped. `ibls` and `platt` are then nearly the same: every score
# is far from the other class, and is moved by nearly all of $\epsilon$.

# %%
{mu: fits[mu, "normal"][2] for mu in MEANS}

# %% [markdown]
# ## Twenty scores prove nothing
#
# So take many data sets. The expected log loss of a curve on all scores that there may ever be is
# an integral, which the trapezoidal rule gets right to many digits; no test set adds noise. What a
# curve loses beyond the optimum is the price of having to learn it from few scores.

# %%
SETS = 150
points = np.linspace(-11, 11, 400)


def excess_loss(slope, intercept, mu):
    """Return the expected log loss of a curve less that of the true one."""
    line, best = slope * points + intercept, 2 * mu * points
    step = 0.5 * (points[1] - points[0])
    positive, negative = norm.pdf(points, mu) * step, norm.pdf(points, -mu) * step
    loss = positive * (np.logaddexp(0, -line) - np.logaddexp(0, -best))
    return (loss + negative * (np.logaddexp(0, line) - np.logaddexp(0, best))).sum()


rows = []
for n in (20, 100):
    y = np.repeat([0, 1], n // 2)
    for mu in MEANS:
        draws = np.random.default_rng(n).normal(size=(SETS, n)) + mu * (2 * y - 1)
        for method in METHODS:
            found = [fit(method, x, y) for x in draws]
            rows.append(
                {
                    "n": n,
                    "mu": mu,
                    "method": method,
                    "losses": np.array([excess_loss(a, b, mu) for a, b, _ in found]),
                    "slope": np.median([a for a, _, _ in found]) / (2 * mu),
                    "separable": sum(status == "unbounded" for _, _, status in found),
                }
            )
results = pd.DataFrame(rows)

# %% [markdown]
# The mean excess in thousandths of a nat with its standard error; how much less `ibls` loses than
# `platt` on the same data sets; and in how many of the 150 sets the classes were separable:

# %%
keys = ["n", "mu"]
losses = results.pivot(index=keys, columns="method", values="losses")
separable = results.pivot(index=keys, columns="method", values="separable")


def thousandths(values):
    """Return mean and standard error as text."""
    return f"{1e3 * values.mean():,.1f} ± {1e3 * values.std() / np.sqrt(SETS):,.1f}"


table = losses[list(METHODS)].map(thousandths)
table["platt less ibls"] = (losses["platt"] - losses["ibls"]).map(thousandths)
table["separable"] = separable["normal"]
table

# %%
fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
for ax, (n, part) in zip(axes, results.groupby("n"), strict=True):
    for method, marker in zip(METHODS, "o^s", strict=True):
        mine = part[part.method == method]
        ax.plot(mine.mu, mine.slope, marker=marker, label=method)
    ax.axhline(1, color="black", linewidth=0.8, linestyle=":")
    ax.set(xlabel=r"$\mu$", title=f"{n} scores", yscale="log")
    ax.set_yticks([0.25, 0.5, 1, 2, 4, 8], ["1/4", "1/2", "1", "2", "4", "8"], minor=False)
    ax.minorticks_off()
axes[0].set_ylabel("Median slope / true slope")
axes[1].legend(frameon=False)
plt.show()

# %% [markdown]
# - **Without smoothing** a few separable data sets are enough to ruin the mean: each has a curve
#   as steep as the iteration happened to leave it. Even where there is an optimum it is too steep,
#   the more so the better the classes are told apart.
# - **With smoothing** curves err on the other side. They are too flat, by half for a hundred scores
#   at $\mu = 2$. That costs little: a modest curve is wrong by little everywhere, a certain one by
#   much where it matters.
# - **Instance-based targets** give slopes nearer to the truth than Platt's. The gain is real, many
#   standard errors where classes are well separated, but small beside what either gains over the
#   labels; at $\mu = 0.5$ with twenty scores it is a loss.
#
# Which curve is best when one knows more, namely a prior for the means, is the subject of the
# first notebook. And on real data? `python -m benchmarks.studies real --data DIR` runs these
# methods and five others on scores of support vector machines and on whole tables. On the scores,
# too, `ibls` and `platt` are next to each other, and both far ahead of bare labels wherever data
# are few.
#
# ## In short
#
# - `bc.LogisticRegression.preset("ibls")` and `preset("platt")` fit soft targets;
#   `bc.smoothing.instance_targets` and `platt_targets` return them for other models.
# - Where scores separate the labels there is no unsmoothed curve: look at `status_`.
# - The smoothing fades as 1 / (N + 2): with thousands of scores it changes nothing, so there is no
#   reason to leave it out.
