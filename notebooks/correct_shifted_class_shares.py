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
# # My classes are rarer in production. Are my probabilities still right?
#
# No: a model that was calibrated where half of the cases are positive says 0.5 too often where a
# tenth are. If the cases of a class still look the same, the scores of unlabeled cases are enough
# to correct it. This notebook does so, says how certain the correction is, and estimates the
# performance before the first label arrives.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit, logit

import bayescal as bc
from bayescal.metrics import log_loss

plt.rcParams.update({"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False})
GRAY, BLUE, ORANGE = "0.35", "#0072B2", "#D55E00"
rng = np.random.default_rng(0)


def draw(n, share):
    """Draw scores and labels: each class has normal scores, whatever its share."""
    y = (rng.random(n) < share).astype(int)
    return 2.4 * (rng.normal(size=n) + 2.4 * (y - 0.5)), y


# %% [markdown]
# Half of 2,000 calibration cases are positive. In production it is a tenth, and nobody tells us.

# %%
calibrator = bc.Auto(inputs="logits").fit(*draw(2000, 0.5))
scores, labels = draw(3000, 0.1)  # the labels are used only to check

shift = bc.PriorShift(calibrator).fit(scores)
lower, upper = shift.shares_interval(0.9)
print(f"share of positives: {shift.shares_[1]:.3f} ({lower[1]:.3f} to {upper[1]:.3f})")
before, after = (log_loss(m.predict_proba(scores), labels) for m in (calibrator, shift))
print(f"log loss before {before:.3f}, after {after:.3f}")
assert lower[1] < 0.1 < upper[1]
assert after < 0.7 * before

# %%
grid = np.linspace(-5, 8, 200)
low, high = shift.predict_interval(grid)
plt.plot(grid, calibrator.predict_proba(grid)[:, 1], color=GRAY, label="calibrator")
plt.plot(grid, shift.predict_proba(grid)[:, 1], color=BLUE, label="with the shift")
plt.fill_between(grid, low, high, color=BLUE, alpha=0.2, lw=0)
plt.plot(grid, expit(grid + logit(0.1)), color=ORANGE, ls="--", label="truth")
plt.xlabel("score")
plt.ylabel("probability")
plt.legend()
plt.show()

# %% [markdown]
# ## How few cases are enough?
#
# The interval says when you know enough. Fifty cases already help; from a few thousand on, the
# uncertainty of the calibrator is what remains.

# %%
for m in (50, 200, 1000, 3000):
    part = bc.PriorShift(calibrator).fit(scores[:m])
    lower, upper = part.shares_interval(0.9)
    loss = log_loss(part.predict_proba(scores), labels)
    print(f"{m:5} cases: {lower[1]:.3f} to {upper[1]:.3f}, log loss {loss:.3f}")

# %% [markdown]
# ## What performance can I expect, without labels?
#
# Calibrated probabilities predict their own losses. The second interval includes the chance in the
# labels of these cases.

# %%
expected = bc.expected_performance(shift, scores)
print(expected)
print(f"log loss with labels: {after:.4f}")

# %% [markdown]
# ## When is it wrong?
#
# The correction assumes that only the shares have changed. The check compares the scores with
# mixtures of the scores of the classes. It finds that these scores are too narrow:

# %%
with warnings.catch_warnings():
    warnings.simplefilter("ignore", bc.AccuracyWarning)
    broken = bc.PriorShift(calibrator).fit(0.3 * scores)
print(broken.check_)
assert broken.check_.fails
assert not shift.check_.fails

# %% [markdown]
# A pass is no proof: scores of one class that move toward the other look like another share. A few
# labels of new cases settle it.
