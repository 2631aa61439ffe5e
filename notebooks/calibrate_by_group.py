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
# # Is my model calibrated in every segment, and what can I do where it has few rows?
#
# A model that is calibrated on average may be over-confident in one region and under-confident in
# another. A curve for each segment mends that where a segment has many rows, and makes it worse
# where it has few. Partial pooling does both: each segment takes from the common curve what its
# rows cannot tell.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.special import expit

import bayescal as bc
from bayescal.metrics import log_loss

plt.rcParams.update({"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False})
GRAY, BLUE, ORANGE = "0.35", "#0072B2", "#D55E00"
rng = np.random.default_rng(0)

# %% [markdown]
# Twelve regions, the smallest with about ten rows. The log odds of the model are shifted in each
# region, and for everybody above an age.

# %%
SIZES = np.geomspace(1, 150, 12)
SHIFT = rng.normal(0, 0.7, 12)


def draw(n):
    """Draw log odds, labels, groups and the true log odds."""
    region, age = rng.choice(12, n, p=SIZES / SIZES.sum()), rng.normal(50, 15, n)
    z = 1.5 * rng.normal(size=n)
    truth = z + SHIFT[region] + 0.6 * (age > 50)
    y = (rng.random(n) < expit(truth)).astype(int)
    return z, y, pd.DataFrame({"region": region, "age": age}), truth


z, y, groups, _ = draw(4000)
new, labels, new_groups, truth = draw(50_000)

# %% [markdown]
# ## Three ways
#
# One curve for all rows, one for each region, and partial pooling:

# %%
pooled = bc.PartialPooling(inputs="logits").fit(z, y, groups=groups)
common = bc.Auto(inputs="logits").fit(z, y)
apart = np.empty(len(new))
for name, rows in groups.groupby("region").groups.items():
    one = bc.Logistic(smoothing="platt", inputs="logits", classes=(0, 1)).fit(z[rows], y[rows])
    here = np.asarray(new_groups["region"] == name)
    apart[here] = one.predict_proba(new[here])[:, 1]

probs = {
    "uncalibrated": expit(new),
    "one curve": common.predict_proba(new)[:, 1],
    "a curve for each region": apart,
    "partial pooling": pooled.predict_proba(new, groups=new_groups)[:, 1],
    "truth": expit(truth),
}
small = np.asarray(new_groups["region"] < 4)
table = pd.DataFrame({
    "all rows": {name: log_loss(p, labels) for name, p in probs.items()},
    "the four smallest regions": {
        name: log_loss(p[small], labels[small]) for name, p in probs.items()
    },
})  # fmt: skip
print(table.round(4))
assert table["all rows"].idxmin() in ("partial pooling", "truth")
assert table["all rows"]["partial pooling"] < table["all rows"]["a curve for each region"]

# %% [markdown]
# ## What was learned
#
# The offset of each region, with 90 % intervals. Small regions have wide intervals, and estimates
# closer to zero than their rows alone would give.

# %%
effects = [effect for effect in pooled.group_effects() if effect.columns == ("region",)]
places = np.arange(len(effects))
offsets = np.array([effect.offset for effect in effects])
ends = np.array([[effect.lower, effect.upper] for effect in effects]).T
plt.errorbar(offsets, places, xerr=np.abs(ends - offsets), fmt="o", color=BLUE, label="estimate")
plt.plot(SHIFT - SHIFT.mean(), places, "x", color=ORANGE, label="truth")
plt.yticks(places, [f"region {effect.level[0]}: {effect.weight:.0f} rows" for effect in effects])
plt.axvline(0, color=GRAY, lw=1)
plt.xlabel("offset in log odds")
plt.legend()
plt.tight_layout()
plt.show()

# %% [markdown]
# ## A region that the fit has never had
#
# It gets the common curve. The interval allows for a shift as large as those of other regions.

# %%
at = pd.DataFrame({"region": [11, 0, 99], "age": [40.0, 40.0, 40.0]})
lower, upper = pooled.predict_interval(np.zeros(3), groups=at)
for name, low, high in zip(["the largest", "the smallest", "unknown"], lower, upper, strict=True):
    print(f"{name}: {low:.2f} to {high:.2f}")
assert upper[2] - lower[2] > upper[0] - lower[0]
