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
# # How well is my model calibrated, and how certain is that?
#
# A calibration error is an estimate. It depends on the bins, on the number of rows, and on chance.
# Two models may differ in it for no reason. This notebook measures a random forest and three
# calibrators of it, shows how far you can trust each number, and then compares methods over many
# data sets. It takes about half a minute.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

import bayescal as bc

plt.rcParams.update({"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False})

# %% [markdown]
# ## A random forest
#
# The predictions are the votes of fully grown trees. Such a forest is under-confident.

# %%
X, y = make_classification(
    9000, n_features=20, n_informative=6, class_sep=0.8, flip_y=0.05, random_state=0
)
X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=3000, random_state=0)
X_cal, X_test, y_cal, y_test = train_test_split(X_rest, y_rest, train_size=1500, random_state=0)
forest = RandomForestClassifier(100, random_state=0).fit(X_train, y_train)
p_cal, p_test = forest.predict_proba(X_cal)[:, 1], forest.predict_proba(X_test)[:, 1]

models = {"forest": p_test}
for calibrator in (bc.Beta(), bc.Isotonic(), bc.VennAbers()):
    fitted = calibrator.fit(p_cal, y_cal)
    models[type(calibrator).__name__] = fitted.predict_proba(p_test)[:, 1]

# %% [markdown]
# ## One table
#
# Each number has an interval. Below it is the difference from the first model, with a p-value. The
# bootstrap draws the same rows for all models, so that chance cancels in the differences.

# %%
report = bc.metrics.report(models, y_test)
report

# %% [markdown]
# All three calibrators improve the Brier score and the calibration error far beyond chance. The
# accuracy has almost nothing to gain, because monotone maps hardly move the threshold at one half.
# Isotonic regression does not improve the log loss: it predicts 0 and 1, and pays for the few times
# when that is wrong. The calibration error does not show this.
#
# ## One picture
#
# The error bars at the diagonal show where the observed frequencies of a calibrated model would
# lie, with as many rows in each bin. Points outside them are not due to chance.

# %%
figure, axes = plt.subplots(1, 3, figsize=(13, 4.6))
bc.plots.reliability(p_test, y_test, ax=axes[0])
axes[0].set_title("forest, in bins")
bc.plots.reliability(p_test, y_test, method="corp", ax=axes[1])
axes[1].set_title("forest, by isotonic regression")
bc.plots.reliability(models["Beta"], y_test, method="smooth", ax=axes[2])
axes[2].set_title("after Beta, smoothed")
figure.tight_layout()

# %% [markdown]
# ## How bins affect the error
#
# Here is a calibrated model: its labels are drawn from its own probabilities, so its true error is
# zero. The plain binned error is never zero, because the gaps between frequencies and predictions
# are random, and their absolute values do not cancel. The debiased error subtracts from the squared
# gaps what chance adds. Only a small bias remains, because the error cannot be negative.

# %%
rng = np.random.default_rng(0)
sizes = [100, 300, 1000, 3000, 10_000]
errors = {
    "ECE, 15 bins": lambda p, t: bc.metrics.ece(p, t),
    "ECE, 100 bins": lambda p, t: bc.metrics.ece(p, t, bins=100),
    "debiased": lambda p, t: bc.metrics.debiased_ece(p, t),
    "smooth": lambda p, t: bc.metrics.smooth_ece(p, t),
}
draws = np.empty((len(sizes), 40, len(errors)))
for row, n in zip(draws, sizes, strict=True):
    for values in row:
        p = rng.random(n)
        t = (rng.random(n) < p).astype(int)
        values[:] = [error(p, t) for error in errors.values()]
means = dict(zip(errors, draws.mean(axis=1).T, strict=True))
axes = bc.plots.by_size(sizes, means, floor=0.0)
_ = axes.set(ylabel="mean error of calibrated models")
# %% [markdown]
# The error alone therefore says little. A test asks whether it is larger than that of a calibrated
# model with the same predictions:

# %%
tests = {
    "ECE, 15 bins": lambda p, t: bc.metrics.consistency_test("ece", p, t, resamples=500),
    "smooth ECE": lambda p, t: bc.metrics.consistency_test("smooth_ece", p, t, resamples=200),
    "Spiegelhalter's z": lambda p, t: bc.metrics.spiegelhalter_test(p, t),
    "kernel (SKCE)": lambda p, t: bc.metrics.skce_test(p, t, resamples=500),
}
pd.DataFrame(
    {
        name: {title: test(p, y_test).p_value for title, test in tests.items()}
        for name, p in models.items()
    }
).round(3)

# %% [markdown]
# ## A decomposition without bins
#
# The Brier score decomposes into three parts: miscalibration, which a calibrator can remove;
# discrimination, which it cannot create; and uncertainty, which belongs to the data.

# %%
parts = {name: bc.metrics.corp(p, y_test) for name, p in models.items()}
pd.DataFrame(
    {
        name: {
            "Brier score": c.score,
            "miscalibration": c.miscalibration,
            "discrimination": c.discrimination,
            "uncertainty": c.uncertainty,
        }
        for name, c in parts.items()
    }
).round(4)

# %% [markdown]
# ## The cost of decisions
#
# Anyone who acts on a probability pays for its errors. Each ratio of the costs of a false alarm and
# a miss has a threshold and an expected cost.

# %%
axes = bc.plots.decision_cost({name: models[name] for name in ("forest", "Beta")}, y_test)

# %% [markdown]
# ## Data larger than memory
#
# An accumulator computes metrics from batches and can be added to another accumulator, so that each
# worker can keep one. It holds a few thousand numbers, however many rows it has seen.

# %%
workers = [bc.metrics.Accumulator(["log_loss", "ece", "smooth_ece"]) for _ in range(3)]
for worker in workers:
    for _ in range(10):
        p = rng.beta(0.5, 0.5, 100_000)
        worker.add(p, (rng.random(len(p)) < 0.1 + 0.8 * p).astype(int))
total = sum(workers[1:], workers[0])
total.result()

# %% [markdown]
# ## Which method is better, over many data sets
#
# One data set proves nothing about a method. How do methods rank over twenty small data sets, and
# which differences could be due to chance?

# %%
methods = {
    "uncalibrated": None,
    "temperature": bc.Temperature(),
    "logistic": bc.Logistic(smoothing="platt"),
    "beta": bc.Beta(),
    "isotonic": bc.Isotonic(bounds="laplace"),
    "histogram": bc.Histogram(bins=10),
    "Venn-Abers": bc.VennAbers(),
}
sources = [load_breast_cancer(return_X_y=True)]
features, classes = load_digits(return_X_y=True)
sources.append((features, (classes == 8).astype(int)))
for seed in range(18):
    sources.append(
        make_classification(
            600, n_features=12, n_informative=3 + seed % 5, flip_y=0.1, random_state=seed
        )
    )
losses = {name: [] for name in methods}
for features, classes in sources:
    train, rest, t, rest_y = train_test_split(features, classes, train_size=0.4, random_state=1)
    cal, test, cal_y, test_y = train_test_split(rest, rest_y, train_size=0.4, random_state=1)
    model = RandomForestClassifier(50, random_state=0).fit(train, t)
    scores, test_scores = model.predict_proba(cal)[:, 1], model.predict_proba(test)[:, 1]
    for name, method in methods.items():
        p = test_scores if method is None else method.fit(scores, cal_y).predict_proba(test_scores)
        losses[name].append(bc.metrics.brier_score(p if p.ndim == 1 else p[:, 1], test_y))

# %%
comparison = bc.compare.compare(losses)
comparison

# %%
axes = bc.plots.critical_difference(comparison)

# %% [markdown]
# Methods joined by a bar do not differ by more than chance allows. The Bayesian test says more. It
# computes the probability that the first method is better by a margin that matters (here 0.001 of
# the Brier score), that it is worse by this margin, or that the two are practically equal.

# %%
bc.compare.bayesian_signed_rank(losses["beta"], losses["Venn-Abers"], margin=0.001)
