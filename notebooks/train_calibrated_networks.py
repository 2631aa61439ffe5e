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
# # How do I train a calibrated network?
#
# Label smoothing makes a network less confident. Constant smoothing treats all wrong classes alike
# and hides which of them are similar. Instance-based smoothing moves probability to the classes
# that another network, trained without smoothing, finds similar. This notebook trains small
# networks on scikit-learn's digits and shows the recorded comparison.

# %%
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.special import softmax

import bayescal as bc
import benchmarks
from benchmarks.studies import training

plt.rcParams.update({"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False})
console = Console(width=110)
results = Path(benchmarks.__file__).parent / "results"

# %% [markdown]
# ## Three kinds of targets
#
# These are the targets of one image of a three, for a network that finds nine and five similar to
# it.

# %%
teacher = np.array([[0, 1, 2, 9, -1, 6, -2, 1, 3, 5.0]])
targets = {
    "none": np.eye(10)[[3]],
    "constant": bc.smoothing.constant_targets([3], 0.1, 10),
    "instance-based": np.asarray(bc.losses.instance_targets(teacher, np.array([3]), 0.1), float),
}
for name, values in targets.items():
    print(f"{name:15s}", values[0].round(3).tolist())

# %% [markdown]
# ## Many settings and seeds in one program
#
# `train` compiles one program for an epoch of all runs. The loss receives the settings of its run.

# %%
images = training.load_images("digits")
split = images.split()
pixels = split.train_images / 255
data = training.TrainingData(*split, mean=pixels.mean(), std=pixels.std())


def loss(logits, labels, weights, extras, run):
    return bc.losses.smoothed_cross_entropy(logits, labels, run["smoothing"], weights=weights)


factors = [0.0, 0.01, 0.05, 0.1, 0.2]
trained = training.train(
    lambda rngs: training.MLP(64, (64,), 10, rngs=rngs),
    data,
    loss=loss,
    runs={"smoothing": factors},
    seeds=range(5),
    epochs=30,
    progress=False,
)
logits = trained.logits(images.test_images).reshape(len(factors), 5, -1, 10)
print({name: f"{seconds:.1f} s" for name, seconds in trained.seconds.items()})

# %%
probs, labels = softmax(logits.astype(float), axis=-1), images.test_labels
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2))
for ax, name in ((left, "log_loss"), (right, "ece")):
    measure = getattr(bc.metrics, name)
    values = np.array([[measure(p, labels) for p in runs] for runs in probs])
    ax.errorbar(
        factors, values.mean(axis=1), 2 * values.std(axis=1, ddof=1) / np.sqrt(5), marker="o"
    )
    ax.set(xlabel="smoothing", ylabel={"log_loss": "log loss", "ece": "ECE"}[name])
figure.tight_layout()

# %% [markdown]
# With too much smoothing a network becomes under-confident, and the calibration error rises again.
# Choose the amount on validation data.

# %% [markdown]
# ## How smoothing changes the similarity of classes
#
# The table was recorded by `python -m benchmarks.studies networks --data digits --seeds 10`, for
# convolutional networks, settings chosen on validation data, and students trained by the networks.
# "Structure" is the correlation between the similarities of the classes (computed from their mean
# logits) and those in other networks without smoothing.

# %%
study = json.loads((results / "study_networks_digits.json").read_text())
table = Table(title=f"{study['data']}, {study['seeds']} seeds, ± half of 95 % intervals")
columns = ("accuracy", "log_loss", "ece", "student_accuracy", "student_log_loss", "structure")
for heading in ("smoothing", "scaled", *(name.replace("_", " ") for name in columns)):
    table.add_column(heading)
for row in study["table"]:
    setting = ", ".join(f"{value:g}" for value in row["setting"].values())
    cells = (row["measures"][name] for name in columns)
    table.add_row(
        f"{row['method']} {setting}",
        "yes" if row["scaled"] else "no",
        *(f"{cell['mean']:.3f} ± {cell['half_width']:.3f}" for cell in cells),
    )
console.print(table)

# %% [markdown]
# The claims of the source (M. Maher, 2020, section 7.3), tested by paired differences over seeds:

# %%
table = Table()
for heading in ("claim", "difference", "verdict"):
    table.add_column(heading)
for claim in study["claims"]:
    gap = f"{claim['difference']:+.4f} ± {claim['half_width']:.4f}"
    table.add_row(claim["claim"], gap, claim["verdict"])
console.print(table)
