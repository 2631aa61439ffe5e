"""Tables, ranks and plots of sweeps."""

from __future__ import annotations

import importlib
import json

import numpy as np
import numpyro.distributions as dist
import pytest
import xarray as xr

import bayescal as bc

importlib.import_module("bayescal.sweeps._accessor")  # registers the accessor of datasets


@pytest.fixture(scope="module")
def result() -> xr.Dataset:
    prior = bc.GaussianPrior(mu0=dist.Uniform(-1, 0), mu1=dist.Uniform(0, 1), sigma=1.0)
    return bc.sweep(
        {"<b>wide": prior}, n_train=[10, 40], methods=["normal", "platt", "optimal"],
        num_datasets=30, n_test=300, progress=False,
    )  # fmt: skip


def test_table(result: xr.Dataset) -> None:
    table = result.bayescal.table()
    text = repr(table)
    for n in (10, 40):
        values = result.value.sel(
            {"n_train": n, "metric": "log_loss", "calibrator": "platt"}
        ).squeeze()
        error = values.std(ddof=1) / np.sqrt(30)
        assert f"{float(values.mean()):.4f} ± {float(error):.4f}" in text
        assert f"n_train {n}" in text
    assert "<b>" not in result.isel(n_train=[0]).bayescal.table()._repr_html_().split("caption")[2]
    with pytest.raises(ValueError, match="metric must be one of"):
        result.bayescal.table("loss")


def test_ranks(result: xr.Dataset) -> None:
    compared = result.bayescal.compare("log_loss", n_train=10)
    table = {
        m: result.value.sel({"calibrator": m, "metric": "log_loss", "n_train": 10}).values.ravel()
        for m in ("normal", "platt", "optimal")
    }
    expected = bc.compare.compare(table)
    np.testing.assert_array_equal(compared.ranks, expected.ranks)
    assert compared.names[int(np.argmin(compared.ranks))] == "optimal"
    assert result.bayescal.compare().scores.shape == (60, 3)
    ax = result.bayescal.plot_by_size("log_loss")
    assert ax.get_xlabel() == "Training cases" and ax.get_ylabel() == "log_loss"
    assert result.bayescal.critical_difference("ece", n_train=40).get_figure() is not None


@pytest.mark.parametrize("what", [{"metric": "ece"}, {"n_train": 40}, {"prior": "<b>wide"}])
def test_a_single_setting_can_be_selected_before(result: xr.Dataset, what: dict) -> None:
    kept = result.sel({name: [value] for name, value in what.items()})
    accessors = [dataset.bayescal for dataset in (result.sel(what), kept)]
    compared = [accessor.compare().scores for accessor in accessors]
    np.testing.assert_array_equal(*compared)
    tables = [accessor.table() for accessor in accessors]
    assert repr(tables[0]).count(" ± ") == repr(tables[1]).count(" ± ")
    drawn = [accessor.plot_by_size().lines[1].get_xydata() for accessor in accessors]
    np.testing.assert_array_equal(*drawn)
    for accessor in accessors:
        accessor.plot()
        accessor.critical_difference()


def test_ranks_of_a_metric_with_a_title() -> None:
    prior = bc.GaussianPrior(mu0=-1.0, mu1=1.0, sigma=dist.Uniform(0.5, 2))
    metrics = {"right": ("accuracy", {}), "accuracy": ("accuracy", {}), "mce": ("mce", {})}
    result = bc.sweep(
        prior, n_train=4, methods=["platt", "optimal"], num_datasets=20, n_test=100,
        metrics=metrics, progress=False,
    )  # fmt: skip
    ranks = [result.bayescal.compare(name).ranks for name in ("right", "accuracy")]
    np.testing.assert_array_equal(*ranks)
    assert ranks[0][1] < ranks[0][0] and result.bayescal.compare("mce").scores.shape == (20, 2)
    about = json.loads(result.attrs["metrics"])
    plain = ["accuracy", {}]
    assert about == {"right": plain, "accuracy": plain, "mce": ["ece", {"norm": np.inf}]}
    # Version 0.1.0 wrote the metrics as text, and the attribute may be missing.
    result.attrs["metrics"] = json.dumps({"accuracy": "('accuracy', {})"})
    np.testing.assert_array_equal(result.bayescal.compare("accuracy").ranks, ranks[1])
    result.attrs.clear()
    np.testing.assert_array_equal(result.bayescal.compare("accuracy").ranks, ranks[1])


def test_one_data_set_and_infinite_losses() -> None:
    dims = ["prior", "n_train", "class_ratio", "calibrator", "dataset", "metric"]
    values = np.full((1, 2, 1, 2, 1, 1), 0.5)
    coordinates = {"n_train": [20, 50], "calibrator": ["platt", "isotonic"], "metric": ["loss"]}
    single = xr.Dataset({"value": (dims, values)}, coordinates)
    assert " 0.5000 " in repr(single.bayescal.table())
    several = xr.concat([single, single], "dataset")
    several["value"][0, 0, 0, 1, 1] = np.inf
    text = repr(several.bayescal.table())
    assert " inf " in text and " 0.5000 ± 0.0000 " in text
    for data in (single, several):
        for lines in (data.bayescal.plot_by_size().lines, data.bayescal.plot()[0].lines):
            drawn = np.asarray(lines[1].get_ydata(), float)
            np.testing.assert_array_equal(drawn, [0.5 if data is single else np.nan, 0.5])


def test_a_panel_for_each_prior() -> None:
    """Check that means, standard errors and titles match the input."""
    dims = ["prior", "n_train", "class_ratio", "calibrator", "dataset", "metric"]
    values = np.random.default_rng(0).uniform(size=(4, 3, 2, 2, 10, 1))
    coordinates = {
        "prior": ["a", "b", "c", "d"],
        "n_train": [20, 50, 100],
        "class_ratio": [0.5, 0.8],
        "calibrator": ["platt", "optimal"],
        "dataset": np.arange(10),
        "metric": ["log_loss"],
    }
    result = xr.Dataset({"value": (dims, values)}, coordinates)
    axes = result.bayescal.plot(class_ratio=0.8)
    assert [ax.get_title() for ax in axes] == ["a", "b", "c", "d"]
    for index, ax in enumerate(axes):
        for number, line in enumerate(ax.lines):
            losses = values[index, :, 1, number, :, 0]
            np.testing.assert_allclose(line.get_xdata(), [20, 50, 100])
            np.testing.assert_allclose(line.get_ydata(), losses.mean(axis=1))
            edges = ax.collections[number].get_paths()[0].vertices[:, 1]
            error = losses.std(axis=1, ddof=1) / np.sqrt(10)
            assert edges.max() == pytest.approx(np.max(losses.mean(axis=1) + error))
    (legend,) = axes[0].get_figure().legends
    assert [text.get_text() for text in legend.get_texts()] == ["platt", "optimal"]
    assert len(axes[0].get_figure().axes) == 4
    axes = result.bayescal.plot(columns=1, prior=["b", "d"], calibrator="platt")
    assert [ax.get_title() for ax in axes] == [
        "b, class_ratio 0.5", "b, class_ratio 0.8", "d, class_ratio 0.5", "d, class_ratio 0.8",
    ]  # fmt: skip
    assert all(len(ax.lines) == 1 for ax in axes)
    # Two rows of panels, one of them empty, and more sizes than fit as tick labels.
    many = result.isel(prior=[0, 1, 2, 3, 0], n_train=[0, 1, 2, 0, 1, 2], class_ratio=[0])
    many = many.assign_coords(prior=[*"abcde"], n_train=[20, 50, 100, 200, 500, 1000])
    axes = many.bayescal.plot()
    for drawn in (axes, axes[0].figure.axes):
        assert [ax.get_title() for ax in drawn] == [*"abcde"]
    assert [bool(ax.get_xlabel()) for ax in axes] == [False, False, True, True, True]
    assert {*axes[0].get_xticks()} != {20, 50, 100, 200, 500, 1000}
    with pytest.raises(ValueError, match="metric must be one of"):
        result.bayescal.plot("loss")
