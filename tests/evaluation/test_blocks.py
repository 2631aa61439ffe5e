"""Evaluations of rows in blocks equal evaluations of all rows in memory."""

import json
import re
from typing import Any

import numpy as np
import pytest

import bayescal as bc
from bayescal.evaluation import _evaluate
from bayescal.metrics.uncertainty import calibration_tests as _significance
from bayescal.metrics.uncertainty import measured_blocks as _measured_blocks


def draw_binary(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    p = rng.beta(0.6, 0.9, n)
    return p, (rng.uniform(size=n) < p**1.1).astype(int)


def draw_classes(n: int, k: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    z = 2 * rng.normal(size=(n, k))
    y = (0.7 * z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return np.exp(z) / np.exp(z).sum(axis=1, keepdims=True), y


def make_blocks(*arrays: Any, size: int = 700) -> bc.Blocks:
    def parts() -> Any:
        for first in range(0, len(arrays[0]), size):
            yield tuple(values[first : first + size] for values in arrays)

    return bc.Blocks(parts)


def rounded_numbers(result: Any) -> Any:
    text = json.dumps(result.to_dict())
    return json.loads(text, parse_float=lambda number: round(float(number), 9))


def svgs(page: str) -> list[np.ndarray]:
    """Return the numbers in each figure of a page, except keys."""
    result = re.findall(r"<svg (?!class=.key).*?</svg>", page, re.DOTALL)
    return [np.array(re.findall(r"-?\d+(?:\.\d+)?", svg), float) for svg in result]


@pytest.fixture
def treat_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat thousands of rows as very large data."""
    monkeypatch.setattr(_evaluate, "_MIN_ROWS_IN_CELLS", 100)
    monkeypatch.setattr(_measured_blocks, "MANY", 100)
    monkeypatch.setattr(_significance, "MANY", 100)


def test_few_cases_are_judged_as_in_memory() -> None:
    p, y = draw_binary(900)
    weights = np.tile([0.5, 1, 2], 300)
    how: dict[str, Any] = {"replicates": 50, "seed": 3, "classes": ["no", "yes"]}
    for rest in ((), (weights,)):
        models = {
            "a": make_blocks(p, y, *rest),
            "b": make_blocks(np.stack([1 - p**2, p**2], 1), y, *rest),
        }
        ours = bc.evaluate(models, **how)
        theirs = bc.evaluate({"a": p, "b": p**2}, y, weights=rest[0] if rest else None, **how)
        assert rounded_numbers(ours) == rounded_numbers(theirs)
    ours = bc.evaluate(make_blocks(*draw_classes(500)), replicates=20)
    assert rounded_numbers(ours) == rounded_numbers(bc.evaluate(*draw_classes(500), replicates=20))


def check(ours: Any, theirs: Any) -> None:
    """Compare exact values up to rounding, and values from cells up to a bound."""
    assert ours.to_dict()["cases"] == theirs.to_dict()["cases"]
    np.testing.assert_allclose(
        list(ours.to_dict()["classes"].values()), list(theirs.to_dict()["classes"].values())
    )
    for name, finding in ours.findings.items():
        other = theirs.findings[name]
        for field in ("confidence", "accuracy", "predicted", "observed"):
            assert getattr(finding, field) == (
                None if getattr(other, field) is None else pytest.approx(getattr(other, field))
            )
        np.testing.assert_allclose(finding.spiegelhalter, other.spiegelhalter, rtol=1e-9)
        assert finding.consistency.statistic == pytest.approx(other.consistency.statistic)
        q = other.consistency.p_value
        draws = theirs.replicates
        assert finding.consistency.p_value == pytest.approx(
            q, abs=5 * np.sqrt(2 * q * (1 - q) / draws) + 2 / draws
        )
        if other.bias is not None:
            # The variances are those of cell means.
            np.testing.assert_allclose(finding.bias.statistic, other.bias.statistic, rtol=1e-4)
        assert finding.verdict == other.verdict
        mine, known = finding.decomposition, other.decomposition
        assert mine.score == pytest.approx(known.score, abs=1e-5)
        assert mine.uncertainty == pytest.approx(known.uncertainty, rel=1e-12)
        # With fewer distinct predictions, isotonic regression overfits less.
        assert -1e-5 < known.miscalibration - mine.miscalibration < 3e-4
        for mine, known in zip(
            ours.events[name].curve(ours.bins), theirs.events[name].curve(theirs.bins), strict=True
        ):
            np.testing.assert_allclose(mine, known, rtol=1e-9)


@pytest.mark.usefixtures("treat_as_large")
@pytest.mark.parametrize("kind", ["counts", "shares"])
def test_many_cases_of_two_classes(kind: str) -> None:
    p, y = draw_binary(20_000)
    p[::7] = np.round(p[::7], 1)  # on borders of bins
    rng = np.random.default_rng(2)
    weights = {"counts": rng.integers(0, 4, len(p)), "shares": rng.gamma(2, size=len(p))}[kind]
    models = {"a": make_blocks(p, y, weights), "b": make_blocks(p**1.1, y, weights)}
    ours = bc.evaluate(models, replicates=200, bins=10)
    theirs = bc.evaluate({"a": p, "b": p**1.1}, y, weights=weights, replicates=200, bins=10)
    check(ours, theirs)
    if kind != "shares":
        return
    page, known = ours.to_html(), theirs.to_html()
    # Frames, titles and lines agree; isotonic regression has a step for each cell.
    assert len(svgs(page)) == len(svgs(known)) == 8
    for index in (3, 6):  # the histograms of the confidence
        np.testing.assert_allclose(svgs(page)[index], svgs(known)[index], atol=0.02)
    assert "effective sample size" in page


@pytest.mark.slow
@pytest.mark.usefixtures("treat_as_large")
def test_many_cases_of_several_classes() -> None:
    probs, y = draw_classes(20_000)
    ours = bc.evaluate(
        {"a": make_blocks(probs, y), "b": make_blocks(probs[:, ::-1], y)}, replicates=200
    )
    theirs = bc.evaluate({"a": probs, "b": probs[:, ::-1]}, y, replicates=200)
    check(ours, theirs)
    for name, event in ours.events.items():
        np.testing.assert_allclose(event.class_errors(), theirs.events[name].class_errors())
        rows = probs if name == "a" else probs[:, ::-1]
        by_class = [bc.metrics.ece(p, y == j) for j, p in enumerate(rows.T)]
        np.testing.assert_allclose(event.class_errors(), by_class)
    page = ours.to_html()
    assert page.count("<svg ") == theirs.to_html().count("<svg ")
    assert "effective sample size" not in page


@pytest.mark.slow
@pytest.mark.usefixtures("treat_as_large")
def test_p_values_are_uniform_where_predictions_are_calibrated() -> None:
    rng = np.random.default_rng(5)
    result = []
    for run in range(80):
        p = rng.uniform(size=300) ** 2
        y = (rng.uniform(size=300) < p).astype(int)
        finding = bc.evaluate(make_blocks(p, y, size=100), replicates=39, seed=run).findings[
            "model"
        ]
        result.append([finding.bias.p_value, finding.consistency.p_value])
    shares = np.mean(np.array(result) <= 0.25, axis=0)
    assert (np.abs(shares - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 80)).all()


def test_what_is_wrong_is_said() -> None:
    p, y = draw_binary(200)
    with pytest.raises(ValueError, match="y must be given, except for Blocks"):
        bc.evaluate(p)
    with pytest.raises(ValueError, match="y and weights must be left out"):
        bc.evaluate(make_blocks(p, y), y)
    with pytest.raises(ValueError, match=r"block 0: probs must lie in \[0, 1\]"):
        bc.evaluate(make_blocks(p + 1, y))
    with pytest.raises(ValueError, match="same cases in the same order"):
        bc.evaluate({"a": make_blocks(p, y), "b": make_blocks(p[::-1], y[::-1])})


@pytest.mark.usefixtures("treat_as_large")
def test_models_of_many_cases_are_cut_alike() -> None:
    p, y = draw_binary(200)
    with pytest.raises(ValueError, match="cut into the same blocks"):
        bc.evaluate({"a": make_blocks(p, y, size=100), "b": make_blocks(p, y, size=50)})
