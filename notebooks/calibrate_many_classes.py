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
# # How do I calibrate a multi-class classifier?
#
# A classifier of ten digits predicts ten probabilities for each image. Are they right? For a binary
# problem a calibration map is a curve. For ten classes it moves points in a space of nine
# dimensions, and there are many ways to do that: one temperature for all classes, a factor for each
# class, a full matrix, or an average over similar rows.
#
# This notebook calibrates a small neural network that reads handwritten digits in many ways, and
# computes how certain the map itself is. It then turns to three classes, where a map can be drawn.
# It takes about half a minute.

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
# One third of the rows trains the network, one third calibrates it, and one third tests the result.
# We add noise to the images, so that the problem is not too easy, and train the network until it
# fits every row. It becomes over-confident.

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
# Every calibrator has the same two methods. It expects probabilities unless you declare logits.
# Calibrators can be composed: here the kernel and the neighbors correct what a temperature leaves.

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
    "temperature, then neighbors": bc.compose(bc.Temperature(), bc.KNN()),
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
# A single temperature repairs most of the damage. An unpenalized factor and intercept for each
# class are too many parameters for six hundred rows, and the log loss rises again. Shrunk toward
# the best temperature they do no harm, and a full matrix even improves on it. Isotonic maps improve
# the log loss least. They predict 0 where they have seen no counterexample, and are punished when
# one comes.

# %%
fig, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for ax, name in zip(axes, ("uncalibrated", "structured matrix"), strict=True):
    bc.plots.reliability(probs[name], y_test, ax=ax)
    ax.set_title(name)

# %% [markdown]
# ## How certain is the map itself?
#
# Six hundred rows leave some uncertainty about twenty parameters. With `inference="laplace"` the
# parameters have a posterior. Predictions are then posterior means, and every probability has a
# credible interval. The intervals of the most probable class are widest where the decision is
# closest.

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
# Predictions for three classes are points in a triangle. Here they come from a generator with a
# known truth: it returns the true probabilities for each prediction. An arrow points from a
# prediction to the calibrated one, and the color shows its length.

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
# A temperature can only pull toward the center, equally from all sides. The truth is not symmetric.
# Dirichlet calibration finds most of the asymmetry, and the kernel finds it without assuming a
# form. The numbers agree. Because the truth is known, so is the distance from it.

# %%
fresh = simplex.sample(20_000, seed=2)
for name, calibration in maps.items():
    apply = getattr(calibration, "predict_proba", calibration)
    away = np.abs(apply(fresh.probs) - fresh.truth).sum(axis=1).mean()
    print(f"{name:12s} mean distance from the truth {away:.4f}")
