"""Tables, ranks and plots of sweeps."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import pytest
import xarray as xr

import bayescal as bc


@pytest.fixture(scope="module")
def found() -> xr.Dataset:
    prior = bc.GaussianPrior(mu0=dist.Uniform(-1, 0), mu1=dist.Uniform(0, 1), sigma=1.0)
    return bc.sweep(
        {"<b>wide": prior}, n_train=[10, 40], methods=["normal", "platt", "optimal"],
        num_datasets=30, n_test=300, progress=False,
    )  # fmt: skip


def test_table(found: xr.Dataset) -> None:
    table = found.bayescal.table()
    text = repr(table)
    for n in (10, 40):
        own = found.value.sel({"n_train": n, "metric": "log_loss", "method": "platt"}).squeeze()
        error = own.std(ddof=1) / np.sqrt(30)
        assert f"{float(own.mean()):.4f} ± {float(error):.4f}" in text
        assert f"n_train {n}" in text
    assert "<b>" not in found.isel(n_train=[0]).bayescal.table()._repr_html_().split("caption")[2]
    with pytest.raises(ValueError, match="metric must be one of"):
        found.bayescal.table("loss")


def test_ranks(found: xr.Dataset) -> None:
    compared = found.bayescal.compare("log_loss", n_train=10)
    table = {
        m: found.value.sel({"method": m, "metric": "log_loss", "n_train": 10}).values.ravel()
        for m in ("normal", "platt", "optimal")
    }
    expected = bc.compare.compare(table)
    np.testing.assert_array_equal(compared.ranks, expected.ranks)
    assert compared.names[int(np.argmin(compared.ranks))] == "optimal"
    assert found.bayescal.compare().scores.shape == (60, 3)


def test_plots(found: xr.Dataset) -> None:
    ax = found.bayescal.plot_by_size("log_loss")
    assert ax.get_xlabel() == "Training cases" and ax.get_ylabel() == "log_loss"
    assert found.bayescal.critical_difference("ece", n_train=40).get_figure() is not None
    plt.close("all")
