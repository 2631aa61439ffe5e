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
# # How do I keep a model from being over-confident?
#
# Take twenty scores, ten of each class, and suppose that the classes happen not to overlap. The
# likelihood of logistic regression then has no maximum: the steeper the curve, the likelier the
# data, and in the end the model is certain of everything. There is an old and simple remedy.
# Instead of the labels 0 and 1, fit *targets* that are a little less extreme.
#
# This notebook shows three ways of choosing targets, on data with a known truth, so that every
# curve can be compared with the best possible one. It follows section 5 of M. Maher's thesis
# (*Instance-based label smoothing for better classifier calibration*, 2020) and reproduces its
# figures 16 to 18. It takes about half a minute.

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
# ## Data with a known truth
#
# The scores of the classes are normal with standard deviation 1 and means $-\mu$ and $\mu$. If the
# classes are equally frequent, the probability of class 1 is exactly $\mathrm{sigmoid}(2 \mu x)$: a
# logistic curve with slope $2 \mu$. The error of a method is the difference of its slope from this
# one.
#
# All four values of $\mu$ use the same random numbers. The two classes therefore move apart until
# they separate.

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
# - `platt`: $t^- = \epsilon^- = 1 / (N^- + 2)$ and $t^+ = 1 - \epsilon^+$ with $\epsilon^+ = 1 /
#   (N^+ + 2)$, where $N^\pm$ are the numbers of rows in each class. This is the estimate of a
#   frequency after $N$ successes in $N$ trials, under a uniform prior.
# - `ibls`, instance-based label smoothing: Platt's $\epsilon$ is the *largest* amount by which a
#   label moves. A score in the middle of its own class moves by nearly all of it, and a score
#   among those of the other class hardly moves:
#
# $$t^+(x) = 1 - \epsilon^+ \frac{f^+(x)}{f^+(x) + f^-(x)}, \qquad
# t^-(x) = \epsilon^- \frac{f^-(x)}{f^+(x) + f^-(x)}.$$
#
# The reason is that smoothing counters over-confidence, and a curve is over-confident where it is
# confident: in the middle of a class. Where the classes overlap, the curve is not confident, and
# moving labels there only flattens it. The thesis gives an example with $\epsilon^+ = 0.1$:

# %%
for f_own, f_other in ((0.7, 0.4), (0.9, 0.05)):
    print(f"densities {f_own} and {f_other}: target {1 - 0.1 * f_own / (f_own + f_other):.3f}")

# %% [markdown]
# The densities $f^\pm$ are kernel estimates from the scores, with Silverman's bandwidth. The upper
# plot shows them for $\mu = 1$. The lower plot shows how far each label moves: not at all (dots),
# by Platt's constant (crosses), or by an amount for each instance (triangles, on the curve of their
# class, $\epsilon^\pm f^\pm / (f^+ + f^-)$).

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
    chosen = labels == c
    top.plot(grid, density[c], color=color)
    top.fill_between(grid, density[c], color=color, alpha=0.15, linewidth=0)
    top.plot(x[chosen], np.full(10, -0.02 - 0.015 * c), "|", color=color, markersize=9)
    top.text((-2.7, 2.3)[c], 0.25, f"class {c}", color=color, ha="center")
    bottom.plot(grid, density[c] / sum(density) / 12, color=color, alpha=0.3)
    for (marker, method), distance in moved.items():
        style = {"color": color, "linestyle": "none", "fillstyle": "none"}
        bottom.plot(x[chosen], distance[chosen], marker, **style, label=method if c == 0 else None)
top.set(ylabel="Density", title="Estimated densities of the scores")
bottom.set(xlabel="Score", ylabel="Label moved by", title="Targets")
bottom.legend(frameon=False, loc="center right")
plt.show()

# %% [markdown]
# ## Four curves
#
# Each choice of targets gives a curve. `LogisticRegression.preset` knows all three by name.


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
# While the classes overlap, the three curves are close together. `ibls` is between the other two,
# because it moves labels less than `platt`. When the classes separate, `normal` has no optimum.
# bayescal reports this (a `ConvergenceWarning`, and `status_ == "unbounded"`) and keeps the last
# curve, whose slope only shows where the iteration stopped. `ibls` and `platt` are then nearly
# equal: every score is far from the other class, and moves by nearly all of $\epsilon$.

# %%
{mu: fits[mu, "normal"][2] for mu in MEANS}

# %% [markdown]
# ## Many data sets
#
# Twenty scores prove nothing, so we draw many data sets. The expected log loss of a curve over all
# possible scores is an integral, which the trapezoidal rule computes to many digits, so no test set
# adds noise. The excess over the optimum is the cost of learning the curve from few scores.

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
            fitted = [fit(method, x, y) for x in draws]
            rows.append(
                {
                    "n": n,
                    "mu": mu,
                    "method": method,
                    "losses": np.array([excess_loss(a, b, mu) for a, b, _ in fitted]),
                    "slope": np.median([a for a, _, _ in fitted]) / (2 * mu),
                    "separable": sum(status == "unbounded" for _, _, status in fitted),
                }
            )
results = pd.DataFrame(rows)

# %% [markdown]
# The table shows the mean excess in thousandths of a nat with its standard error, the difference
# between `platt` and `ibls` on the same data sets, and in how many of the 150 data sets the classes
# were separable:

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
        chosen = part[part.method == method]
        ax.plot(chosen.mu, chosen.slope, marker=marker, label=method)
    ax.axhline(1, color="black", linewidth=0.8, linestyle=":")
    ax.set(xlabel=r"$\mu$", title=f"{n} scores", yscale="log")
    ax.set_yticks([0.25, 0.5, 1, 2, 4, 8], ["1/4", "1/2", "1", "2", "4", "8"], minor=False)
    ax.minorticks_off()
axes[0].set_ylabel("Median slope / true slope")
axes[1].legend(frameon=False)
plt.show()

# %% [markdown]
# - **Without smoothing**, a few separable data sets ruin the mean. Each has a curve whose slope
#   depends only on where the iteration stopped. Even where an optimum exists the curve is too
#   steep, and more so for well-separated classes.
# - **With smoothing**, curves err on the other side. They are too flat, by half for a hundred
#   scores at $\mu = 2$. That costs little: a flat curve is slightly wrong everywhere, and a steep
#   one is badly wrong where it matters.
# - **Instance-based targets** give slopes closer to the truth than Platt's. The gain is real
#   (many standard errors where the classes are well separated) but small compared with what both
#   gain over the labels. At $\mu = 0.5$ with twenty scores it is a loss.
#
# If you also have a prior for the means, the best curve is the subject of the tutorial on few
# labels. For real data, `python -m benchmarks.studies real --data DIR` runs these methods and five
# others on scores of support vector machines and on complete tables. There, `ibls` and `platt` are
# again close to each other, and both are far better than the labels wherever data are few.
#
# ## Summary
#
# - `bc.LogisticRegression.preset("ibls")` and `preset("platt")` fit soft targets.
#   `bc.smoothing.instance_targets` and `platt_targets` compute them for other models.
# - If scores separate the labels, there is no curve without smoothing. Check `status_`.
# - Smoothing fades as 1 / (N + 2). With thousands of scores it changes nothing, so there is no
#   reason to leave it out.
