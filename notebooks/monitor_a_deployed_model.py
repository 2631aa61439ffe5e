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
# # How do I notice that a deployed model has lost its calibration?
#
# A model is calibrated on the day it is deployed. Then the world changes, and the outcomes arrive a
# few at a time. This notebook simulates a year of predictions whose calibration decays slowly,
# follows them with `bc.Monitor`, and recalibrates after the alarm. It takes a few seconds.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bayescal as bc

plt.rcParams.update({"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False})
rng = np.random.default_rng(0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# %% [markdown]
# ## A year that goes wrong in summer
#
# The model predicts 40 cases a day. Until the end of May its probabilities are right. In June
# and July the slope of the true log odds falls from 1 to 0.5, and positive cases become more
# frequent.

# %%
days = pd.date_range("2026-01-01", periods=365, freq="D").repeat(40)
log_odds = rng.normal(-0.5, 1.8, len(days))
decay = np.clip((days.day_of_year.to_numpy() - 151) / 45, 0, 1)
truth = sigmoid((1 - 0.5 * decay) * log_odds + 0.4 * decay)
log = pd.DataFrame({"p": sigmoid(log_odds), "y": rng.random(len(days)) < truth}, index=days)
log.head(3)

# %% [markdown]
# ## Follow it day by day
#
# The monitor may be asked after every day, or after every row, and still raises a false alarm with
# a probability of at most 5 % in its whole life.

# %%
monitor = bc.Monitor(alpha=0.05)
for _, rows in log.groupby(level=0):
    monitor.update(rows["p"], rows["y"])
    if monitor.alarm_:
        break

print(f"alarm on {monitor.alarm_time_}, probable start {monitor.start_time_}")
print(monitor.action_)
assert "2026-06-01" <= str(monitor.alarm_time_) <= "2026-07-31"

# %% [markdown]
# ## What a test of each month would have said
#
# A test of fixed size, repeated, is no substitute. Spiegelhalter's test at 5 % rejects one
# calibrated month in twenty. In 400 simulated calm years, how often does at least one of twelve
# monthly tests reject, and how often does the monitor?

# %%
false = {"monthly tests": 0, "monitor": 0}
for _ in range(400):
    p = sigmoid(rng.normal(-0.5, 1.8, 12 * 400))
    y = (rng.random(len(p)) < p).astype(int)
    months = zip(p.reshape(12, -1), y.reshape(12, -1), strict=True)
    false["monthly tests"] += any(
        bc.metrics.spiegelhalter_test(a, b).p_value <= 0.05 for a, b in months
    )
    false["monitor"] += bc.Monitor(alpha=0.05).update(p, y).alarm_

print({name: f"{count / 400:.1%}" for name, count in false.items()})
assert false["monitor"] < 0.1 * 400 < false["monthly tests"]

# %% [markdown]
# ## See the decay
#
# The evidence stays near zero until summer and then rises without limit. The slope and the offset
# are those of all rows since January, so they move slowly.

# %%
whole = bc.Monitor(alpha=0.05).update(log["p"], log["y"])
axes = whole.plot()

# %% [markdown]
# ## Recalibrate, and begin again
#
# After the alarm, wait for some weeks of outcomes, fit a calibrator to them, and follow the new
# probabilities with a new monitor.

# %%
fitted_on = log[str(monitor.alarm_time_) : "2026-09-15"]
later = log["2026-09-16":]
calibrator = bc.Auto().fit(fitted_on["p"].to_numpy(), fitted_on["y"].to_numpy())
new = calibrator.predict_proba(later["p"].to_numpy())[:, 1]

losses = {
    "as deployed": bc.metrics.log_loss(later["p"].to_numpy(), later["y"].to_numpy()),
    "recalibrated": bc.metrics.log_loss(new, later["y"].to_numpy()),
}
print({name: round(loss, 4) for name, loss in losses.items()})
assert losses["recalibrated"] < losses["as deployed"]

# %%
deployed = bc.Monitor().update(later["p"], later["y"])
recalibrated = bc.Monitor().update(new, later["y"], times=later.index)
print("as deployed: ", deployed)
print("recalibrated:", recalibrated)
print(recalibrated.action_)
assert deployed.alarm_ and not recalibrated.alarm_

# %% [markdown]
# The new probabilities raise no alarm. Had the decay gone on, a new alarm would come: the monitor
# says when it is time to calibrate again.
