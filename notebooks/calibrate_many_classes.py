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
# # How do I calibrate a classifier of many classes?
#
# A classifier of ten digits says how sure it is, ten numbers at a time. Are they right? With two
# classes a calibration map is a curve; with ten it moves points of a space of nine dimensions, and
# there are many ways to do that: one temperature for all, a factor for each class, a whole matrix,
# or an average over what happened nearby.
#
# This notebook calibrates a small neural network that reads handwritten digits, in many ways, asks
# how sure the map itself can be, and then turns to three classes, where a map can be drawn. It
# needs about half a minute.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import bayescal as bc
from bayescal.datasets import simplex

plt.rcParams.update({"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False})

# %% [markdown]
# ## Digits
#
# A third of the rows train the network, a third calibrate it, a third judge the result. The images
# get some noise, so that the task is not too easy, and the network trains until it fits every row:
# it has learned to be certain.

# %%
images, y = load_digits(return_X_y=True)
X = (images + 6 * np.random.default_rng(0).normal(size=images.shape)) / 16
X_train, X_rest, y_train, y_rest = train_test_split(
    X, y, train_size=1 / 3, stratify=y, random_state=0
)
X_cal, X_test, y_cal, y_test = train_test_split(
    X_rest, y_rest, train_size=1 / 2, stratify=y_rest, random_state=0
)
model = MLPClassifier((100,), alpha=0, max_iter=1000, random_state=0).fit(X_train, y_train)
p_cal, p_test = model.predict_proba(X_cal), model.predict_proba(X_test)
accuracy = float(bc.metrics.accuracy(p_test, y_test))
print(f"accuracy {accuracy:.3f}, mean confidence {p_test.max(axis=1).mean():.3f}")

# %% [markdown]
# Every calibrator has the same two methods, and takes probabilities unless told that scores are
# logits. One may follow another: the kernel and the neighbours look at what a temperature left.

# %%
calibrators = {
    "temperature": bc.Temperature(),
    "ensemble temperature": bc.EnsembleTemperature(),
    "vector": bc.Vector(),
    "structured vector": bc.StructuredVector(),
    "structured matrix": bc.StructuredMatrix(),
    "Dirichlet, cross-validated": bc.Dirichlet("cv", "cv", random_state=0),
    "isotonic, one versus rest": bc.OneVsRest(bc.Isotonic()),
    "temperature, then kernel": bc.compose(bc.Temperature(), bc.Kernel()),
    "temperature, then neighbours": bc.compose(bc.Temperature(), bc.KNN()),
}
probs = {"uncalibrated": p_test}
for name, calibrator in calibrators.items():
    probs[name] = calibrator.fit(p_cal, y_cal).predict_proba(p_test)

# %%
table = pd.DataFrame(
    {
        name: {
            "accuracy": float(bc.metrics.accuracy(p, y_test)),
            "log loss": float(bc.metrics.log_loss(p, y_test)),
            "Brier score": float(bc.metrics.brier_score(p, y_test)),
            "ECE": float(bc.metrics.ece(p, y_test, bins=15, binning="equal_mass")),
        }
        for name, p in probs.items()
    }
).T
table.round(3)

# %% [markdown]
# One temperature repairs most of the damage. A factor and an intercept for each class, fitted
# freely to six hundred rows, are too many: the log loss is worse again. Shrunk towards the best
# temperature they do no harm, and a whole matrix even gains. Isotonic maps gain least, by log loss:
# they say 0 where they have seen no counterexample, and are punished when one comes.

# %%
fig, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for ax, name in zip(axes, ("uncalibrated", "structured matrix"), strict=True):
    bc.plots.reliability(probs[name], y_test, ax=ax)
    ax.set_title(name)

# %% [markdown]
# ## How sure is the map itself?
#
# Six hundred rows leave some doubt about twenty parameters. With `inference="laplace"` the
# parameters have a posterior; predictions are then posterior means, and every probability has a
# credible interval. The intervals of the most probable class are wide just where a decision could
# go either way.

# %%
posterior = bc.StructuredVector(inference="laplace", random_state=0)
mean = posterior.fit(p_cal, y_cal).predict_proba(p_test)
lower, upper = posterior.predict_interval(p_test, level=0.9)
rows = np.arange(len(mean))
top = mean.argmax(axis=1)
order = np.argsort(mean[rows, top])
fig, ax = plt.subplots(figsize=(7, 3), layout="constrained")
ax.fill_between(rows, lower[rows, top][order], upper[rows, top][order], alpha=0.3, linewidth=0)
ax.plot(rows, mean[rows, top][order])
_ = ax.set(xlabel="test rows, by confidence", ylabel="confidence, 90 % interval", ylim=(0, 1.02))
# %% [markdown]
# ## Three classes
#
# Predictions of three classes are points of a triangle. Here they come from a generator whose truth
# is known: it says for each prediction what the probabilities really are. An arrow points from a
# prediction to the calibrated one, colours show how far that is.

# %%
data = simplex.sample(5000, seed=1)
maps = {
    "the truth": simplex.true_probabilities,
    "temperature": bc.Temperature().fit(data.probs, data.y),
    "Dirichlet": bc.Dirichlet().fit(data.probs, data.y),
    "kernel": bc.Kernel().fit(data.probs, data.y),
}
fig, axes = plt.subplots(2, 2, figsize=(9, 7.4), layout="constrained")
for ax, (name, calibration) in zip(axes.flat, maps.items(), strict=True):
    bc.plots.simplex(calibration, limit=0.25, ax=ax)
    ax.set_title(name)

# %% [markdown]
# One temperature can only pull towards the middle, alike from all sides. The truth is not alike on
# all sides: Dirichlet calibration finds most of that, the kernel finds it without a given form.
# Numbers say the same. Since the truth is known, so is the distance from it.

# %%
fresh = simplex.sample(20_000, seed=2)
for name, calibration in maps.items():
    apply = getattr(calibration, "predict_proba", calibration)
    away = np.abs(apply(fresh.probs) - fresh.truth).sum(axis=1).mean()
    print(f"{name:12s} mean distance from the truth {away:.4f}")
