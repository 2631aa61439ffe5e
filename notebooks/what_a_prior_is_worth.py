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
# # How much is a prior worth?
#
# If you know roughly where the scores of two classes lie, you can calibrate with fewer labels. How
# many fewer? What if the knowledge is wrong, and what if one class is rare? Such questions need
# many data sets from known sources. `bayescal.sweep` draws them, fits every method to each of them,
# and measures it on fresh data, for all combinations of settings. This notebook takes about half a
# minute.

# %%
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist

import bayescal as bc

plt.rcParams.update({"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False})

# %% [markdown]
# ## Three sources
#
# The scores of both classes are normal with standard deviation 1. Their means differ between data
# sets: hardly separated, somewhat separated, or well separated.

# %%
priors = {
    "hardly apart": bc.GaussianPrior(dist.Uniform(-0.5, 0), dist.Uniform(0, 0.5), 1.0),
    "apart": bc.GaussianPrior(dist.Uniform(-2.5, 0), dist.Uniform(0, 2.5), 1.0),
    "well apart": bc.GaussianPrior(dist.Normal(-2, 0.3), dist.Normal(2, 0.3), 1.0),
}
methods = ["platt", "cauchy_map", "predictive", "optimal"]
results = bc.sweep(
    priors,
    n_train=[10, 50, 250],
    methods=methods,
    num_datasets=125,
    n_test=2000,
    progress=False,
)
results

# %% [markdown]
# The result is an xarray data set with one number for each prior, size, method, data set and
# metric. `predictive` knows the prior. `optimal` knows the means of each data set, so no method can
# beat it.

# %%
results.bayescal.table("log_loss")

# %%
figure, axes = plt.subplots(1, 3, figsize=(15, 4), gridspec_kw={"wspace": 0.7})
for name, ax in zip(priors, axes, strict=True):
    results.bayescal.plot_by_size("log_loss", ax=ax, prior=name)
    ax.set_title(name)

# %% [markdown]
# How many labels is the prior worth? We look for the size at which Platt's targets are as good as
# `predictive` with ten labels, if it is among the sizes:

# %%
loss = results.value.sel(metric="log_loss").mean("dataset").squeeze("class_ratio")
for name in priors:
    informed = float(loss.sel({"prior": name, "calibrator": "predictive", "n_train": 10}))
    platt = loss.sel({"prior": name, "calibrator": "platt"})
    size = np.interp(-informed, -platt.values, np.log(platt.n_train.values))
    more = "more than" if informed < float(platt[-1]) else "about"
    print(f"{name}: 10 labels and the prior are worth {more} {np.exp(size):.0f} labels")

# %% [markdown]
# ## Is this due to chance?
#
# All methods see the same data sets, so their ranks can be compared.

# %%
axes = results.bayescal.critical_difference("log_loss", n_train=50)

# %% [markdown]
# ## A wrong prior
#
# The data are the same, but the methods have other beliefs: that the classes are farther apart than
# they are, that they are closer, or only the scale. A prior can be passed as a method.

# %%
beliefs = {
    "right": "predictive",
    "too far apart": bc.GaussianPrior(dist.Normal(-3, 0.5), dist.Normal(3, 0.5), 1.0),
    "too near": priors["hardly apart"],
    "vague": bc.GaussianPrior(dist.Normal(0, 5), dist.Normal(0, 5), 1.0),
    "platt": "platt",
    "optimal": "optimal",
}
wrong = bc.sweep(
    {"apart": priors["apart"]},
    n_train=[10, 50],
    methods=beliefs,
    num_datasets=250,
    n_test=2000,
    progress=False,
)
wrong.bayescal.table("log_loss")

# %% [markdown]
# A vague prior costs little. A confident prior that excludes the truth does harm that data repair
# only slowly: if you believe that the classes are close, you do worse than with no prior at all.
#
# ## A rare class
#
# The training data have fewer and fewer rows of one class. The test data have equally many of both.
# The informed predictions know the densities of each class, and the class frequency to expect. A
# regression learns the class frequency of the training data, which is not that of the test data.

# %%
rare = bc.sweep(
    {"apart": priors["apart"]},
    n_train=50,
    class_ratio=[0.5, 0.7, 0.9],
    methods=["platt", "predictive", "optimal"],
    num_datasets=250,
    n_test=2000,
    progress=False,
)
rare.bayescal.table("log_loss")

# %%
figure, ax = plt.subplots(figsize=(6, 4))
means = rare.value.sel(metric="log_loss").mean("dataset").squeeze()
for method in rare.calibrator.values:
    ax.plot(rare.class_ratio, means.sel({"calibrator": method}), "o-", label=method)
ax.set(xlabel="share of class 1 in training", ylabel="log loss")
_ = ax.legend(frameon=False)
