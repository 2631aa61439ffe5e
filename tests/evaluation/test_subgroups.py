"""``evaluate(by=...)``: a separate evaluation for each subgroup."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bayescal as bc


def draw_subgroups(n: int = 600) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return predictions that are calibrated in the north and too high in the south."""
    rng = np.random.default_rng(3)
    p, region = rng.uniform(size=n), rng.choice(["north", "south"], n, p=[0.7, 0.3])
    truth = np.where(region == "south", p**3, p)
    return p, (rng.uniform(size=n) < truth).astype(int), region


def test_subgroups_are_evaluations_of_their_rows() -> None:
    p, y, region = draw_subgroups()
    weights = np.tile([1.0, 2.0, 0.0], 200)
    groups = np.arange(600) // 2
    models, how = {"a": p, "b": p**2}, {"replicates": 60, "seed": 4}
    result = bc.evaluate(models, y, by=region, weights=weights, groups=groups, **how)
    assert list(result.by) == ["north", "south"]
    for name, part in result.by.items():
        rows = region == name
        alone = bc.evaluate(
            {model: probs[rows] for model, probs in models.items()},
            y[rows],
            weights=weights[rows],
            groups=groups[rows],
            title=name,
            **how,
        )
        assert part.report == alone.report
        assert part.to_dict() == alone.to_dict()
    whole = bc.evaluate(models, y, weights=weights, groups=groups, **how)
    assert result.report == whole.report and not whole.by
    verdicts = {name: part.findings["a"].verdict for name, part in result.by.items()}
    assert verdicts == {"north": "no evidence", "south": "too high"}


def test_numbers_and_tables() -> None:
    p, y, region = draw_subgroups()
    names = np.where(region == "north", "<b>north</b>", "south")
    page = bc.evaluate({"a": p, "b": p**2}, y, by=names, replicates=20).to_html()
    section = page.split("<h2>Subgroups</h2>")[1].split("</section>")[0]
    assert section.count("<figure>") == 2 and section.count("<tr>") == 5
    assert "&lt;b&gt;north&lt;/b&gt;" in section and "<b>north" not in page
    result = bc.evaluate(p, y, by=region, replicates=50)
    frame = result.to_frame()
    assert frame.index.names == ["subgroup", "model", "metric"]
    assert frame.index.levels[0].tolist() == ["all", "north", "south"]
    rows = region == "south"
    value = frame.loc[("south", "model", "log loss"), "value"]
    assert value == pytest.approx(bc.metrics.log_loss(p[rows], y[rows]))
    assert f"| south | {rows.sum()} | {value:.4f} |" in result.to_markdown()
    assert "By subgroup" in repr(result) and "too high" in repr(result)
    numbers = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert list(numbers["subgroups"]) == ["north", "south"]
    assert numbers["subgroups"]["south"]["cases"] == rows.sum()


def test_tiny_subgroups_and_those_of_one_class() -> None:
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(2), 40)
    y = np.repeat([0, 1], 20)
    by = np.where(np.arange(40) == 5, "one", np.where(np.arange(40) < 20, "first", "rest"))
    result = bc.evaluate(probs, y, by=by, replicates=40)
    sizes = {name: part.report.cases for name, part in result.by.items()}
    assert sizes == {"first": 19, "one": 1, "rest": 20}
    assert "ROC AUC" not in result.by["first"].report.intervals["model"]
    assert result.to_html().count("<h2>Subgroups</h2>") == 1
    json.dumps(result.to_dict(), allow_nan=False)


def test_order_of_subgroups() -> None:
    p, y, _ = draw_subgroups(60)
    ages = pd.Series(np.linspace(10, 90, 60))
    cut = pd.cut(ages, [0, 18, 65, 120], labels=["young", "adult", "old"])
    assert list(bc.evaluate(p, y, by=cut, replicates=20).by) == ["young", "adult", "old"]
    assert list(bc.evaluate(p, y, by=np.arange(60) % 11, replicates=20).by)[-2:] == ["9", "10"]
    pairs: Any = list(zip(np.arange(60) % 2, np.array(["b", "a"])[np.arange(60) % 2], strict=True))
    assert list(bc.evaluate(p, y, by=pairs, replicates=20).by) == ["0, b", "1, a"]
    mixed: Any = ["b", 1, "a"] * 20
    assert list(bc.evaluate(p, y, by=mixed, replicates=20).by) == ["b", "1", "a"]


@pytest.mark.parametrize(
    ("by", "message"),
    [
        (np.arange(600), "by must have at most 100 different values, got 600; cut numbers"),
        (np.arange(3), r"by must have shape \(600,\), one label for each row"),
        ([None, 1] * 300, "by must"),
        ([1, "1"] * 300, "by must hold values that differ as text"),
    ],
)
def test_wrong_labels_are_errors(by: Any, message: str) -> None:
    p, y, _ = draw_subgroups()
    with pytest.raises(ValueError, match=message):
        bc.evaluate(p, y, by=by, replicates=20)
    with pytest.raises(ValueError, match="by must be left out for Blocks"):
        bc.evaluate(bc.Blocks([(p, y)]), by=np.arange(600) % 2)
