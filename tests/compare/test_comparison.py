"""All statistics in one result, and the accepted kinds of tables."""

import io
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
import xarray
from rich.console import Console
from scipy.stats import sem

from bayescal import compare as c


@pytest.fixture
def scores() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shifts = {"a": 0, "b": 2, "c": 0.1, "d": 1}
    return {name: rng.normal(loc=shift, size=15) for name, shift in shifts.items()}


def test_parts_are_those_of_the_functions(scores: Any) -> None:
    result = c.compare(scores, level=0.1, margin=0.2, draws=500, seed=3)
    assert result.names == tuple("abcd")
    np.testing.assert_array_equal(result.ranks, c.average_ranks(scores))
    assert result.friedman == c.friedman(scores)
    for one, other in (
        (result.wilcoxon, c.wilcoxon(scores)),
        (result.nemenyi, c.nemenyi(scores, 0.1)),
        (result.bayesian, c.bayesian_signed_rank_matrix(scores, margin=0.2, draws=500, seed=3)),
    ):
        for mine, theirs in zip(one, other, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(result.significant(), result.wilcoxon.adjusted <= 0.1)
    np.testing.assert_array_equal(result.significant("nemenyi"), result.nemenyi.p_value <= 0.1)
    for test in ("wilcoxon", "nemenyi"):
        groups = c.cliques(result.ranks, result.significant(test))
        assert result.cliques(test) == [tuple("abcd"[i] for i in group) for group in groups]
    with pytest.raises(ValueError, match="test must be one of"):
        result.significant("friedman")


def test_what_people_see(scores: Any) -> None:
    scores["<b>[red]"] = scores["a"] + 3
    result = c.compare(scores, draws=200)
    assert len(repr(result)) < 120
    assert "5 methods, 15 data sets" in repr(result)
    assert "best" in repr(result)
    stream = io.StringIO()
    Console(file=stream, width=100).print(result.table())
    text = stream.getvalue()
    assert "<b>[red]" in text
    assert f"{result.ranks[0]:.2f}" in text
    page = result._repr_html_()
    assert "&lt;b&gt;[red]" in page
    assert "<b>[red]" not in page
    assert page.count("<tr>") == 6
    best = result.names[int(np.argmin(result.ranks))]
    assert page.index(f">{best}<") < page.index("&lt;b&gt;[red]")


@pytest.mark.parametrize("shape", [(1, 2), (1, 5), (2, 2)])
def test_small_tables(shape: tuple[int, int]) -> None:
    result = c.compare(np.random.default_rng(0).normal(size=shape), draws=100)
    assert 0 <= result.friedman.p_value <= 1
    assert np.isfinite(result.wilcoxon.adjusted).all()
    assert result.nemenyi.critical_difference > 0
    assert "nan" not in repr(result)
    assert result.table().row_count == shape[1]
    if shape[0] == 1:
        assert result.cliques() == [tuple(f"method {i}" for i in np.argsort(result.scores[0]))]
        assert "1 data set," in repr(result)


def test_equal_scores_make_one_group() -> None:
    result = c.compare(np.ones((6, 3)), draws=100)
    np.testing.assert_array_equal(result.ranks, 2)
    for test in ("wilcoxon", "nemenyi"):
        assert result.cliques(test) == [("method 0", "method 1", "method 2")]
    np.testing.assert_array_equal(result.bayesian.equal, 1)


TABLES: list[tuple[Any, type[Exception], str]] = [
    ([1.0, 2], ValueError, r"shape \(data sets, methods\).* got \(2,\)"),
    ([[1.0], [2]], ValueError, r"two methods or more, got \(2, 1\)"),
    (np.empty((0, 3)), ValueError, r"got \(0, 3\)"),
    ({}, ValueError, "must not be an empty mapping"),
    ({"a": [1.0, 2], "b": [1.0]}, ValueError, r"one shape \(data sets,\), got \(2,\), \(1,\)"),
    ({"a": [[1.0]], "b": [[2.0]]}, ValueError, r"one shape \(data sets,\)"),
    ({"a": [1.0], "b": ["x"]}, TypeError, r"scores\['b'\] must be numeric"),
    ({"a": [1.0, 2], "b": [1.0, np.nan]}, ValueError, "NaN for method 'b' on data set 1"),
    ({1: [1.0], "1": [2.0]}, ValueError, "names must differ, got '1' 2 times"),
]


@pytest.mark.parametrize("function", [c.average_ranks, c.friedman, c.nemenyi, c.wilcoxon,
                                      c.bayesian_signed_rank_matrix, c.compare])  # fmt: skip
def test_bad_tables(function: Callable) -> None:
    for table, error, message in TABLES:
        with pytest.raises(error, match=message):
            function(table)


@pytest.mark.parametrize("function", [c.wilcoxon, c.bayesian_signed_rank_matrix, c.compare])
def test_infinities_have_no_differences(function: Callable) -> None:
    with pytest.raises(ValueError, match="infinity for method 'b' on data set 0"):
        function({"a": [1.0, 2], "b": [np.inf, 3]})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"names": ["a"]}, ValueError, "names must be 2, one for each method, got 1"),
        ({"names": ["a", "a"]}, ValueError, "names must differ, got 'a' 2 times"),
        ({"names": "ab"}, TypeError, "names must be one name for each method"),
        ({"level": 0}, ValueError, "level must lie strictly"),
        ({"margin": -0.1}, ValueError, "margin must be"),
    ],
)
def test_bad_options(options: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        c.compare([[1.0, 2], [2, 3]], **options)
    with pytest.raises(ValueError, match="names must be left out"):
        c.compare({"a": [1.0], "b": [2.0]}, names=["a", "b"])


def test_win_rates_count_pairs_and_improvements_are_of_the_baseline(scores: Any) -> None:
    scores["e"] = scores["a"].copy()  # ties
    x = np.stack(list(scores.values()), axis=1)
    wins = np.mean(np.sign(x[:, None, :] - x[:, :, None]) / 2 + 0.5, axis=0)
    expected = (wins.sum(axis=1) - 0.5) / 4
    for sign in (1, -1):
        signed = {name: sign * column for name, column in scores.items()}
        result = c.compare(signed, baseline="b", draws=200, lower_is_better=sign == 1)
        np.testing.assert_allclose(result.win_rates, expected, rtol=1e-12)
        for index, column in enumerate(scores.values()):
            gap = scores["b"] - column
            assert result.improvement.mean[index] == pytest.approx(gap.mean(), abs=1e-15)
            error = np.std(gap, ddof=1) / np.sqrt(15)
            assert result.improvement.error[index] == pytest.approx(error, abs=1e-15)
        np.testing.assert_allclose(result.improvement.wins, wins[:, 1], rtol=1e-12)
    stream = io.StringIO()
    Console(file=stream, width=120).print(result.table())
    assert f"{gap.mean():.2g} ± {error:.1g}" in stream.getvalue()


def test_a_baseline_is_a_method(scores: Any) -> None:
    with pytest.raises(ValueError, match="baseline must be one of"):
        c.compare(scores, baseline="raw", draws=200)
    with pytest.raises(AttributeError, match="needs a baseline"):
        _ = c.compare(scores, draws=200).improvement


def test_scores_that_are_equal_up_to_rounding_are_ties_in_all_tests() -> None:
    scores = {"a": [0.1 + 0.2] * 8, "b": [0.3] * 8, "c": [0.8 - 0.5] * 8}
    for lower in (True, False):
        actual = c.compare(scores, baseline="a", lower_is_better=lower)
        np.testing.assert_array_equal(actual.ranks, 2)
        np.testing.assert_array_equal(actual.win_rates, 0.5)
        np.testing.assert_array_equal(actual.improvement.wins, 0.5)
        np.testing.assert_array_equal(actual.bayesian.equal, 1)
        np.testing.assert_array_equal(actual.wilcoxon.p_value, 1)
        assert (actual.friedman.p_value, actual.friedman.statistic) == (1, 0)
        assert actual.cliques() == actual.cliques("nemenyi") == [("a", "b", "c")]
    np.testing.assert_array_equal(c.average_ranks(scores), 2)
    assert c.bayesian_signed_rank(scores["a"], scores["b"]).equal == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
def test_scores_in_low_precision_tie_as_in_double_precision(dtype: type) -> None:
    """Check that equal scores, and equal differences of decimals, are ties in two precisions."""
    scores = np.random.default_rng(0).integers(1, 9, (12, 3)) / 10
    low = scores.astype(dtype)
    double = c.compare(scores, draws=500)
    np.testing.assert_array_equal(c.compare(low, draws=500).wilcoxon.p_value, double.wilcoxon[0])
    np.testing.assert_array_equal(c.compare(low, draws=500).bayesian.better, double.bayesian[0])
    same = {"double": scores[:, 0] / 7, "low": (scores[:, 0] / 7).astype(dtype)}
    frames = [] if dtype is jnp.bfloat16 else [pd.DataFrame(same)]
    if dtype is np.float32:
        frames += [frames[0].convert_dtypes(), pl.DataFrame(same)]
    if dtype is np.float32 and find_spec("pyarrow"):
        frames.append(frames[0].convert_dtypes(dtype_backend="pyarrow"))
    for table, lower in [(same, True), (same, False), *((frame, True) for frame in frames)]:
        actual = c.compare(table, lower_is_better=lower, draws=500)
        np.testing.assert_array_equal(actual.ranks, 1.5)
        np.testing.assert_array_equal(actual.wilcoxon.p_value, 1)
        np.testing.assert_array_equal(actual.bayesian.equal, 1)
    assert c.bayesian_signed_rank(same["low"], same["double"], draws=500).equal == 1


def test_ties_are_ties_beside_large_scores() -> None:
    """Check that rounding of scores near 1e9 does not create ties on other data sets."""
    scores = np.array([[1e9, 1e9], *([1e-9, 3e-9] for _ in range(7))])
    actual = c.wilcoxon(scores)
    assert actual.p_value[0, 1] == pytest.approx(2 / 2**7)
    assert c.average_ranks(scores).tolist() == [1.0625, 1.9375]


def test_named_data_sets_are_matched_by_name() -> None:
    a = pd.Series([0.1, 0.2, 0.3, 0.4], list("abcd"))
    b = pd.Series([0.45, 0.35, 0.25, 0.15], list("dcba"))
    frame = pd.DataFrame({"m": a, "n": b})
    assert c.compare(frame, names=["u", "v"], draws=10).names == ("u", "v")
    assert c.compare(frame, draws=10).names == ("m", "n")
    for function in (c.wilcoxon, c.friedman, c.average_ranks, c.nemenyi):
        actual, expected = function({"m": a, "n": b}), function(frame)
        np.testing.assert_equal(actual, expected)
    assert c.bayesian_signed_rank(a, b) == c.bayesian_signed_rank(a, frame["n"])
    assert c.wilcoxon({"m": a, "n": b}).p_value[0, 1] == 0.125
    # Without names, or with numeric names on one side only, rows are matched by position.
    for other in (frame["n"].to_numpy(), frame["n"].reset_index(drop=True)):
        assert c.wilcoxon({"m": a, "n": other}).p_value[0, 1] == 0.125
    numbered = frame["n"].reset_index(drop=True)
    shuffled = {"m": a.reset_index(drop=True), "n": numbered[[2, 0, 3, 1]]}
    assert c.wilcoxon(shuffled).p_value[0, 1] == 0.125
    rows = [frame.loc["a"], *(frame.loc[name][::-1] for name in "bcd")]
    assert c.compare(rows).names == ("m", "n")
    assert c.wilcoxon(rows).p_value[0, 1] == 0.125
    array = xarray.DataArray(b.to_numpy(), {"set": list("dcba")}, ["set"])
    same = xarray.DataArray(a.to_numpy(), {"set": list("abcd")}, ["set"])
    assert c.wilcoxon({"m": same, "n": array}).p_value[0, 1] == 0.125


@pytest.mark.parametrize(
    "other", [{"n": pd.Series([1.0, 2], ["a", "z"])}, {"n": pd.Series([1.0, 2], ["a", "a"])}]
)
def test_data_sets_that_cannot_be_matched_are_an_error(other: dict[str, pd.Series]) -> None:
    a = pd.Series([0.1, 0.2], ["a", "b"])
    with pytest.raises(ValueError, match=r"scores\['n'\] must have entries named like those of"):
        c.wilcoxon({"m": a, **other})
    with pytest.raises(ValueError, match="beside entries without names"):
        c.wilcoxon({"m": a, "n": a[::-1], "o": a.to_numpy()})
    with pytest.raises(ValueError, match="b must have entries named like those of a"):
        c.bayesian_signed_rank(a, other["n"])


def test_cliques_of_named_methods() -> None:
    differ = pd.DataFrame([[0, 1, 0], [1, 0, 0], [0, 0, 0]], list("cab"), list("cab")).astype(bool)
    ranks = pd.Series([1.0, 2.0, 3.0], list("abc"))
    assert c.cliques(ranks, differ) == [(0, 1), (1, 2)]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_differences_at_the_margin_are_within_it_in_any_precision(dtype: type) -> None:
    """Check scores in hundredths, with exact differences computed from integers."""
    rng = np.random.default_rng(0)
    points = rng.integers(60, 90, (20, 2))
    points[:, 1] = points[:, 0] + rng.integers(-3, 4, 20)
    scores = {"a": (points[:, 0] / 100).astype(dtype), "b": (points[:, 1] / 100).astype(dtype)}
    for margin in (0, 1, 2):
        exact = c.bayesian_signed_rank(points[:, 0], points[:, 1], margin=margin, draws=2000)
        for lower in (True, False):
            actual = c.bayesian_signed_rank(
                *scores.values(), margin=margin / 100, draws=2000, lower_is_better=lower
            )
            sides = (actual.better, actual.worse) if lower else (actual.worse, actual.better)
            assert (*sides, actual.equal) == (exact.better, exact.worse, exact.equal)
    gap = points[:1, 0] - np.array([1])
    alone = c.bayesian_signed_rank(
        (points[:1, 0] / 100).astype(dtype), (gap / 100).astype(dtype), margin=0.01
    )
    assert alone.equal == 1


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e160, 1e300])
def test_improvements_of_scores_of_any_size(size: float) -> None:
    scores = np.random.default_rng(0).random((30, 4))
    plain = c.compare(scores, baseline="method 0", draws=100).improvement
    scaled = scores * [size, size, size, 1.0]
    actual = c.compare(scaled, baseline="method 0", draws=100).improvement
    np.testing.assert_allclose(actual.mean[:3] / size, plain.mean[:3], rtol=1e-12)
    np.testing.assert_allclose(actual.error[:3] / size, plain.error[:3], rtol=1e-9)
    gaps = scaled[:, 0] - scaled[:, 3]
    assert actual.mean[3] == pytest.approx(gaps.mean())
    assert actual.error[3] == pytest.approx(float(sem(gaps / max(size, 1))) * max(size, 1))
