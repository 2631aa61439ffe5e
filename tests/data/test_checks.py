"""Input validation: accepted input, its converted form, and error messages."""

import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest

import bayescal as bc
from bayescal.data import checks
from bayescal.data import label_names as labels
from bayescal.data.predictions import as_given


def says(text: str) -> str:
    """Return a pattern for ``pytest.raises`` that matches exactly ``text``."""
    return f"^{re.escape(text)}$"


# --- arrays -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        [1.0, 0.5, -2.0],
        (1, 0.5, -2),
        np.array([1.0, 0.5, -2.0]),
        np.array([1.0, 0.5, -2.0], np.float16),
        np.array([1, 0.5, -2], object),
        pd.Series([1.0, 0.5, -2.0], index=[7, 3, 5]),
        pd.Series([1.0, 0.5, -2.0], dtype="Float64"),
        jnp.array([1.0, 0.5, -2.0]),
        jnp.array([1.0, 0.5, -2.0], jnp.bfloat16),
    ],
    ids=lambda v: f"{type(v).__name__}-{getattr(v, 'dtype', '')}",
)
def test_as_numpy_keeps_numbers(value: Any) -> None:
    array = checks.as_numpy(value, "x")
    assert isinstance(array, np.ndarray)
    np.testing.assert_array_equal(array.astype(float), [1.0, 0.5, -2.0])


@pytest.mark.parametrize("dtype", ["Float32", "float[pyarrow]"])
def test_as_numpy_keeps_the_precision_of_frames(dtype: str) -> None:
    """NumPy converts their columns to objects; metrics find bins by the precision of the type."""
    if "pyarrow" in dtype:
        pytest.importorskip("pyarrow")
    tenths = np.tile([[0.4, 0.6], [0.45, 0.55]], (5, 1)).astype(np.float32)
    frame = pd.DataFrame(tenths).astype(dtype)
    assert checks.as_numpy(frame, "x").dtype == np.float32
    assert checks.as_numpy(frame.astype({0: "Float64"}), "x").dtype == np.float64
    labels = [0, 1] * 5
    assert bc.metrics.ece(frame, labels, bins=10) == bc.metrics.ece(tenths, labels, bins=10)


@pytest.mark.parity("torch")
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool", "float16", "bfloat16"])
def test_as_numpy_takes_torch(dtype: str) -> None:
    import torch

    value = torch.tensor([[1, 0], [0, 1]]).to(getattr(torch, dtype))
    if value.is_floating_point():
        value.requires_grad_()
    array = checks.as_numpy(value, "x")
    np.testing.assert_array_equal(array.astype(float), [[1, 0], [0, 1]])
    assert array.dtype.name == dtype


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (["a", "b"], "dtype <U1"),
        (["0", "1"], "dtype <U1"),
        (np.array(["0", "1"], object), "values of type str"),
        (np.array([1 + 2j]), "dtype complex128"),
        (np.array(["2020-01-01"], "datetime64[D]"), "dtype datetime64[D]"),
        ([{"a": 1}], "values of type dict"),
        ([1, None, "b"], "values of type NoneType, int, str"),
        (np.array([1, pd.NA], object), "values of type NAType, int"),
        (iter([0.5]), "values of type list_iterator; pass batches of rows as bayescal.Blocks(...)"),
    ],
)
def test_as_numpy_wants_numbers(value: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=says(f"scores must be numeric, got {kind}")):
        checks.as_numpy(value, "scores")


def test_as_numpy_wants_rectangles() -> None:
    with pytest.raises(ValueError, match=r"^x must be a rectangular array of numbers: "):
        checks.as_numpy([[1.0, 2.0], [3.0]], "x")


def test_check_finite_says_where() -> None:
    checks.check_finite(np.array([1e308, -1e308, 0]), "x")
    with pytest.raises(
        ValueError, match=says("x must be finite, got NaN at position 2 (1 in all)")
    ):
        checks.check_finite(np.array([0, 1, np.nan]), "x")
    message = "x must be finite, got infinity at position (1, 0) (2 in all)"
    with pytest.raises(ValueError, match=says(message)):
        checks.check_finite(np.array([[0, 1], [np.inf, 2], [-np.inf, 3]]), "x")


# --- labels, counts, choices, levels ------------------------------------------------------------


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float16, np.float64])
def test_check_labels_returns_integers(dtype: type) -> None:
    labels = checks.check_labels(np.array([0, 1, 1, 0]).astype(dtype), 2)
    assert labels.dtype == np.int64
    np.testing.assert_array_equal(labels, [0, 1, 1, 0])


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        ([0, 1, 2], 2, "labels must be in {0, 1}, got 2"),
        ([-1, 1, -1, 1], 2, "labels must be in {0, 1}, got -1"),
        ([0.0, 0.5, 1.0, 0.25], 2, "labels must be in {0, 1}, got 0.25, 0.5"),
        ([1, 2, 3], 3, "labels must be in {0, ..., 2}, got 3"),
        (list(range(2, 20)), 2, "labels must be in {0, 1}, got 2, 3, 4, 5, 6"),
        ([0.0, np.nan], 2, "labels must be finite, got NaN at position 1 (1 in all)"),
        ([np.inf, 0.0], 2, "labels must be finite, got infinity at position 0 (1 in all)"),
    ],
)
def test_check_labels_says_what_it_found(labels: list, classes: int, message: str) -> None:
    with pytest.raises(ValueError, match=says(message)):
        checks.check_labels(np.array(labels), classes)


def test_check_count() -> None:
    assert checks.check_count(np.int16(3), "num_samples") == 3
    assert type(checks.check_count(np.int16(3), "num_samples")) is int
    for value in (0, -5):
        message = f"num_samples must be at least 1, got {value}"
        with pytest.raises(ValueError, match=says(message)):
            checks.check_count(value, "num_samples")
    assert type(checks.check_count(1e5, "num_samples")) is int
    for value in (1e5 + 0.5, np.float32(2.5), np.inf, np.nan, "10", None, True):
        message = f"num_samples must be an integer, got {value!r}"
        with pytest.raises(TypeError, match=says(message)):
            checks.check_count(value, "num_samples")


def test_check_choice() -> None:
    assert checks.check_choice("b", "method", ("a", "b")) == "b"
    for value in ("c", None, 1, "A"):
        message = f"method must be one of 'a', 'b', got {value!r}"
        with pytest.raises(ValueError, match=says(message)):
            checks.check_choice(value, "method", ("a", "b"))
    for array in (np.ones(3), jnp.ones(3)):
        with pytest.raises(ValueError, match="method must be one of 'a', 'b', got a "):
            checks.check_choice(array, "method", ("a", "b"))


def test_check_level() -> None:
    assert checks.check_level(np.float32(0.5)) == 0.5
    for value in (0, 1, -0.1, 1.5, 90, float("nan")):
        message = f"level must lie strictly between 0 and 1, got {value}"
        with pytest.raises(ValueError, match=says(message)):
            checks.check_level(value)
    for other in ([0.5, 0.9], None, "high"):
        with pytest.raises(TypeError, match=says(f"level must be a number, got {other!r}")):
            checks.check_level(other)


# --- class_prior --------------------------------------------------------------------------------


def test_class_prior_of_two_classes_is_that_of_class_one() -> None:
    np.testing.assert_allclose(checks.check_class_prior(0.2, 2), [0.8, 0.2])
    np.testing.assert_allclose(checks.check_class_prior([0.8, 0.2], 2), [0.8, 0.2])
    np.testing.assert_allclose(checks.check_class_prior(jnp.array(0.25), 2), [0.75, 0.25])


def test_class_prior_of_more_classes() -> None:
    np.testing.assert_allclose(checks.check_class_prior(0.5, 4), [0.25] * 4)
    np.testing.assert_allclose(checks.check_class_prior((0.5, 0.3, 0.2), 3), [0.5, 0.3, 0.2])
    # The rounding of single precision is corrected.
    single = checks.check_class_prior(np.array([0.7, 0.2, 0.1], np.float32), 3)
    assert single.sum() == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize(
    ("value", "classes", "message"),
    [
        (0, 2, "class_prior must lie strictly between 0 and 1, got 0"),
        (1.0, 2, "class_prior must lie strictly between 0 and 1, got 1"),
        (-0.5, 3, "class_prior must lie strictly between 0 and 1, got -0.5"),
        (float("nan"), 2, "class_prior must lie strictly between 0 and 1, got nan"),
        ([0, 1], 2, "class_prior must lie strictly between 0 and 1, got [0.0, 1.0]"),
        ([0.5, np.nan], 2, "class_prior must lie strictly between 0 and 1, got [0.5, nan]"),
        (0.3, 3, "class_prior must be 3 probabilities, got the number 0.3"),
        ([0.5, 0.5], 3, "class_prior must have shape (3,), got (2,)"),
        ([0.2], 2, "class_prior must have shape (2,), got (1,)"),
        ([[0.5, 0.5]], 2, "class_prior must have shape (2,), got (1, 2)"),
        ([0.5, 0.4], 2, "class_prior must sum to one, got 0.9"),
    ],
)
def test_class_prior_says_what_is_wrong(value: Any, classes: int, message: str) -> None:
    with pytest.raises(ValueError, match=says(message)):
        checks.check_class_prior(value, classes)


def test_class_prior_wants_numbers() -> None:
    with pytest.raises(TypeError, match=says("class_prior must be numeric, got dtype <U4")):
        checks.check_class_prior("half", 2)


# --- data sets ----------------------------------------------------------------------------------


def test_one_data_set() -> None:
    batch = checks.check_data(([0.5, 2, -1], [1, 0, 1]), True, 2)
    np.testing.assert_array_equal(batch.x, [[0.5, 2, -1]])
    np.testing.assert_array_equal(batch.y, [[1, 0, 1]])
    np.testing.assert_array_equal(batch.mask, [[True, True, True]])
    assert batch.single
    assert (batch.x.dtype, batch.y.dtype, batch.mask.dtype) == (np.float64, np.int64, np.bool_)


def test_features() -> None:
    x = np.arange(6).reshape(3, 2)
    batch = checks.check_data((x, [2, 0, 1]), False, 3)
    np.testing.assert_array_equal(batch.x, x[None])
    assert batch.single
    batch = checks.check_data((np.stack([x, -x]), [[2, 0, 1], [1, 1, 1]]), False, 3)
    assert batch.x.shape == (2, 3, 2)
    assert not batch.single


def test_what_a_mask_hides_is_replaced() -> None:
    x = [[1.0, np.nan, 3.0], [np.inf, 5.0, -np.inf]]
    y = [[0, 9, 1], [np.nan, 1, -3]]
    mask = [[1, 0, 1], [0, 1, 0]]
    batch = checks.check_data((x, y, mask), True, 2)
    np.testing.assert_array_equal(batch.x, [[1, 1, 3], [5, 5, 5]])
    np.testing.assert_array_equal(batch.y, [[0, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(batch.mask, np.array(mask, bool))
    features = np.array(x)[..., None] + [0.0, 10.0]
    batch = checks.check_data((features, y, mask), False, 2)
    np.testing.assert_array_equal(batch.x[..., 1], [[11, 11, 13], [15, 15, 15]])


def test_list_is_padded_to_the_longest() -> None:
    batch = checks.check_data([([1, 2, 3], [0, 1, 1]), ([4.5], [1])], True, 2)
    np.testing.assert_array_equal(batch.x, [[1, 2, 3], [4.5, 4.5, 4.5]])
    np.testing.assert_array_equal(batch.mask, [[True, True, True], [True, False, False]])
    np.testing.assert_array_equal(batch.y[batch.mask], [0, 1, 1, 1])
    assert not batch.single
    # A list of one data set is a batch of one, and each item may have a mask.
    one = checks.check_data([([1.0, np.nan], [1, 1], [True, False])], True, 2)
    assert not one.single
    np.testing.assert_array_equal(one.mask, [[True, False]])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((np.ones((2, 3)), [0, 1, 1]), "labels must have shape (2, 3) to match x of shape (2, 3)"),
        ((1.0, 0), "x must have shape (n,) or (batch, n) for this family, got ()"),
        (([[1.0, 2.0]] * 2, [[0, 1]] * 2, [[1, 1], [0, 0]]), "every data set needs at least one"),
        ([], "data must not be empty, got an empty list of data sets"),
        (([1.0, 2.0],), "or a list of tuples (x, y), got tuple of length 1"),
        ([[1.0, 2.0], [0, 1]], "must hold tuples (x, y), one for each data set; item 0 is list."),
        (
            [([1.0], [0]), ([1.0, np.nan], [0, 1])],
            "data[1]: x must be finite, got NaN at",
        ),
        ([([1.0], [0]), (["a"], [0])], "data[1]: x must be numeric, got dtype <U1"),
        ([([1.0], [0]), ([[1.0]], [[0]])], "data[1] must be one data set, got a batch of 1"),
        (([[1.0, np.inf], [np.nan, 0.0]], [[0, 1]] * 2), "got NaN at position (0, 1) (2 in all)"),
    ],
)
def test_data_say_what_is_wrong(data: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        checks.check_data(data, True, 2)
    with pytest.raises(ValueError, match="data sets with one number of features"):
        checks.check_data([(np.ones((3, k)), [0, 1, 1]) for k in (2, 4)], False, 2)
    with pytest.raises(ValueError, match=re.escape("(n, d) or (batch, n, d) for this family, got")):
        checks.check_data(([1.0, 2.0, 3.0], [0, 1, 1]), False, 2)


# --- points -------------------------------------------------------------------------------------

ONE = checks.check_data(([1.0, 2.0], [0, 1]), True, 2)
THREE = checks.check_data((np.ones((3, 2)), np.ones((3, 2))), True, 2)
PLANE = checks.check_data((np.ones((4, 2)), np.ones(4)), False, 2)
PLANES = checks.check_data((np.ones((3, 4, 2)), np.ones((3, 4))), False, 2)


@pytest.mark.parametrize(
    ("data", "univariate", "shape", "expected"),
    [
        (ONE, True, (5,), (1, 5)),
        (THREE, True, (5,), (1, 5)),
        (THREE, True, (3, 5), (3, 5)),
        (PLANE, False, (5, 2), (1, 5, 2)),
        (PLANES, False, (5, 2), (1, 5, 2)),
        (PLANES, False, (3, 5, 2), (3, 5, 2)),
    ],
)
def test_points_get_an_axis_of_data_sets(
    data: checks.Batch, univariate: bool, shape: tuple, expected: tuple
) -> None:
    x = np.arange(np.prod(shape)).reshape(shape)
    result = checks.check_points(x, data, univariate)
    assert result.shape == expected
    np.testing.assert_array_equal(result.ravel(), x.ravel())


@pytest.mark.parametrize(
    ("data", "univariate", "x", "message"),
    [
        (
            THREE,
            True,
            np.ones((2, 5)),
            "(m,), or 3 rows of that, one for each data set, got (2",
        ),
        (PLANE, False, 1.0, "x must have 2 features as in training, got 0"),
        (PLANES, False, np.ones((2, 5, 2)), "x must have shape (m, d), or 3 rows of that, one for"),
    ],
)
def test_points_say_what_is_wrong(
    data: checks.Batch, univariate: bool, x: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        checks.check_points(x, data, univariate)


# --- rows of probabilities ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "eps", "passes"),
    [
        (1.0009, 2.0**-52, True),
        (0.9991, 2.0**-52, True),
        (1.0011, 2.0**-52, False),
        (0.9989, 2.0**-52, False),
        (1.0011, 2.0**-10, True),
        (np.nan, 2.0**-52, False),
    ],
)
def test_rows_must_sum_to_one(total: float, eps: float, passes: bool) -> None:
    rows = np.array([[0.5, 0.5], [total - 0.25, 0.25]])
    if passes:
        checks.check_row_sums(rows, "p", eps=eps)
        return
    text = f"p must have rows that sum to one, got a sum of {total:g} in row 1; do"
    with pytest.raises(ValueError, match=says(text)):
        checks.check_row_sums(rows, "p", eps=eps, advice="do")


def test_the_wrong_row_of_very_many_is_named() -> None:
    rows = np.full((200_000, 2), 0.5)
    rows[150_001, 0] = 0.75
    with pytest.raises(ValueError, match="got a sum of 1.25 in row 150001$"):
        checks.check_row_sums(rows, "p")


def test_named_columns_beside_columns_without_names() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 50)
    y = (rng.random((50, 3)) < p).astype(int)
    named = pd.DataFrame(p, columns=["x", "y", "z"])
    assert labels.matched_names(named, None) is None
    assert labels.matched_names(named, ["z", "y", "x"]) == ["x", "y", "z"]
    assert labels.matched_names(pd.DataFrame(p[:, [2, 0, 1]], columns=[2, 0, 1]), None) == [2, 0, 1]
    expected = bc.metrics.multilabel_ece(p, y)
    assert bc.metrics.multilabel_ece(named, y) == expected
    assert bc.metrics.multilabel_ece(named, pd.DataFrame(y, columns=[*"xyz"])) == expected
    turned = pd.DataFrame(y[:, ::-1], columns=[*"zyx"])
    assert bc.metrics.multilabel_ece(named, turned) == expected


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16, np.float32, np.float64])
def test_probabilities_find_their_bins_in_the_type_in_which_they_were_given(dtype: Any) -> None:
    given = (np.arange(1, 20) / 20).astype(dtype)
    wide = given.astype(np.float64)
    back = as_given(wide, checks.precision(given.dtype))
    assert back.dtype == given.dtype
    np.testing.assert_array_equal(back, given)


def test_columns_by_their_names() -> None:
    rows = np.arange(6.0).reshape(2, 3)
    turned = rows[:, [2, 0, 1]]
    frame = pd.DataFrame(rows)
    assert labels.column_names(frame) is None  # a range index is not a name
    assert labels.column_names(rows) is None
    assert labels.column_names(frame[[2, 0, 1]]) == [2, 0, 1]
    for names in ([2, 0, 1], ["2", "0", "1"]):
        np.testing.assert_array_equal(labels.in_order(turned, names, range(3)), rows)
    for names in (["x", "y", "z"], None, [0, 1, 2]):
        np.testing.assert_array_equal(labels.in_order(rows, names, range(3)), rows)
    for names in ([0, 1, 3], [0, 1, 1], ["0", "x", "y"], [0, 1]):
        with pytest.raises(ValueError, match="probs must have columns named like all"):
            labels.in_order(rows, names, range(3))
    one = np.ones((4, 1))
    for name in ("b", "p", 0, 1):
        assert labels.in_order(one, [name], ["a", "b"]) is one
    with pytest.raises(ValueError, match="pass the column of the second class"):
        labels.in_order(one, ["a"], ["a", "b"])


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        ([2, 0, 1], [0, 1, 2]),
        ([2.0, 0.0, 1.0], np.arange(3)),
        (["2.0", "0.0", "1.0"], np.arange(3.0)),
        (["2", "0", "1"], np.arange(3.0)),
        (["p_c", "p_a", "p_b"], ["a", "b", "c"]),
        (["c_prob", "a_prob", "b_prob"], ["a", "b", "c"]),
        (["is-ab?", "is-a?", "is-aa?"], ["a", "aa", "ab"]),
        ([pd.Timestamp(day) for day in ("2021-03-01", "2020-01-01", "2021-02-01 12:30")], None),
        (["2021-03-01 00:00:00", "2020-01-01", "2021-02-01T12:30:00.000"], None),
        ([902, 900, 901], [900, 901, 902]),
        ([900000000000207002, 900000000000207000, 900000000000207001], None),
    ],
)
def test_names_in_whatever_form_labels_have(names: list[Any], classes: Any) -> None:
    rows = np.arange(6.0).reshape(2, 3)
    if classes is None:
        kind = np.int64 if isinstance(names[0], int) else "M8[ns]"
        classes = np.sort(np.array(names).astype(kind))
        assert len(np.unique(classes)) == 3
    np.testing.assert_array_equal(labels.in_order(rows, names, classes), rows[:, [1, 2, 0]])


def test_names_of_true_and_false() -> None:
    rows = np.array([[0.1, 0.9]])
    for names in ([True, False], ["True", "False"], [np.True_, np.False_], ["p_True", "p_False"]):
        np.testing.assert_array_equal(labels.in_order(rows, names, [False, True]), rows[:, ::-1])
    np.testing.assert_array_equal(labels.in_order(rows, [True, False], range(2)), rows[:, ::-1])
    # Different strings are different labels.
    np.testing.assert_array_equal(labels.in_order(rows, ["1.0", "1"], ["1", "1.0"]), rows[:, ::-1])


def test_a_range_is_a_name_unless_it_counts_from_zero() -> None:
    frame = pd.DataFrame({1: [0.9], 0: [0.1]})
    assert labels.column_names(frame) == [1, 0]
    assert labels.column_names(frame.iloc[:, ::-1]) is None
    assert labels.column_names(pd.DataFrame(np.ones((1, 4))).iloc[:, 1:]) == [1, 2, 3]
    assert labels.column_names(pl.DataFrame(np.ones((1, 2)))) is None


def test_two_places_between_the_same_texts_say_nothing() -> None:
    assert labels.by_affixes(["xa", "xb"], ["a", "b"]) == [0, 1]
    assert labels.by_affixes(["aa", "aaa"], ["aa", "a"]) == [1, 0]
    assert labels.by_affixes(["xa", "yb"], ["a", "b"]) is None
    assert labels.by_affixes(["xa", "xb", "xc"], ["a", "b"]) is None


NO_LABEL: dict[str, tuple[Any, Any]] = {
    "numbers": (np.array([0.0, 1.0, 2.0]), np.nan),
    "text": (np.array(["a", "b", "c"], object), None),
    "objects": (np.array([3, 4, 5], object), None),
    "dates": (np.array(["2020", "2021", "2022"], "M8[D]"), np.datetime64("NaT", "D")),
    "another class": (np.array([0, 1, 2]), 7),
    "NA": (np.array([False, True, True], object), pd.NA),
}


def with_missing_labels(name: str, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return predictions, labels and weights; rows 57 to 59 have weight zero and no label."""
    labels, missing = NO_LABEL[name]
    rng = np.random.default_rng(0)
    codes, weights = rng.integers(0, k, 60), np.append(rng.integers(1, 4, 57), [0, 0, 0])
    codes[:k] = np.arange(k)
    y = labels[codes]
    y[57:] = missing
    p = rng.dirichlet(np.ones(k), 60)
    return (p[:, 1] if k == 2 else p), y, weights


@pytest.mark.parametrize("name", NO_LABEL)
@pytest.mark.parametrize("cls", [bc.Beta, bc.Isotonic, bc.Temperature, bc.Vector])
def test_rows_of_weight_zero_need_no_label(cls: Any, name: str) -> None:
    """Check rows without labels in memory and in blocks: they count as absent."""
    k = 2 if name == "NA" or cls in (bc.Beta, bc.Isotonic) else 3
    p, y, weights = with_missing_labels(name, k)
    expected = cls().fit(p[:57], y[:57], weights[:57])
    blocks = [(p[part], y[part], weights[part]) for part in (slice(30), slice(30, None))]
    for fitted in (cls().fit(p, y, weights), cls().fit(bc.Blocks(blocks))):
        assert fitted.classes_.tolist() == expected.classes_.tolist()
        np.testing.assert_allclose(
            fitted.predict_proba(p), expected.predict_proba(p), rtol=1e-6, atol=1e-8
        )


@pytest.mark.parametrize("name", NO_LABEL)
def test_rows_of_weight_zero_need_no_label_beside_features_or_groups(name: str) -> None:
    p, y, weights = with_missing_labels(name, 2)
    used, rng = slice(57), np.random.default_rng(1)
    x, groups = rng.normal(size=(60, 2)), np.array(["u", "v"])[rng.integers(0, 2, 60)]
    regression, arguments = bc.LogisticRegression, (x[used], y[used], weights[used])
    np.testing.assert_array_equal(
        regression().fit(x, y, weights).coef_, regression().fit(*arguments).coef_
    )
    for pooled in (bc.Multicalibration, bc.PartialPooling):
        result = pooled().fit(p, y, groups=groups, sample_weight=weights)
        expected = pooled().fit(p[used], y[used], groups=groups[used], sample_weight=weights[used])
        np.testing.assert_allclose(
            result.predict_proba(p, groups=groups),
            expected.predict_proba(p, groups=groups),
            atol=1e-12,
        )
    scores = np.stack([1 - p, p], axis=1)
    shift = [
        bc.PriorShift().fit(scores, calibration=(scores[part], y[part], weights[part]))
        for part in (slice(None), used)
    ]
    assert shift[0].classes_.tolist() == shift[1].classes_.tolist()
    np.testing.assert_array_equal(*(result.predict_proba(scores) for result in shift))


def test_labels_of_rows_with_weight_are_needed() -> None:
    p, y = np.array([0.2, 0.4, 0.6, 0.8]), np.array([0.0, 1.0, np.nan, 1.0])
    for weights in (None, np.array([0, 1, 1, 1])):
        with pytest.raises(ValueError, match="missing labels, got NaN in row 2"):
            bc.Beta().fit(p, y, weights)
    with pytest.raises(ValueError, match="block 0: y must not have missing labels"):
        bc.Beta().fit(bc.Blocks([(p, y, np.array([0, 1, 1, 1]))]))
