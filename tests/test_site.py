"""The site: every public name has a page, and the site check finds faults."""

import importlib
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from sklearn.base import BaseEstimator

import bayescal as bc
from bayescal.metrics.registry import METRICS
from tests.test_architecture import listed_names

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site() -> dict[str, ModuleType]:
    """Import the modules that build the site, which are in no package."""
    folders = [str(ROOT / "docs"), str(ROOT / "docs" / "_extensions")]
    sys.path[:0] = folders
    modules = ("reference", "pictures", "measures", "pages", "parameters", "sources", "build")
    result = {name: importlib.import_module(name) for name in modules}
    for folder in folders:
        sys.path.remove(folder)
    return result


def test_every_public_name_is_in_one_group(site: dict[str, ModuleType]) -> None:
    # Read from the source, independent of the tested code.
    modules = {
        name: getattr(bc, name) for name in bc.__all__ if inspect.ismodule(getattr(bc, name))
    }
    expected = {name for name in bc.__all__ if name not in modules}
    for name, module in modules.items():
        for key in listed_names(module):
            inner = getattr(module, key)
            more = [f"{key}.{n}" for n in listed_names(inner)] if inspect.ismodule(inner) else [key]
            expected |= {f"{name}.{n}" for n in more}
    grouped = [name for group in site["reference"].groups().values() for name in group]
    assert len(grouped) == len(set(grouped))
    # The adapters share one page; the family is public in its module alone.
    assert set(grouped) == expected | {"adapters", "models.Family"}
    assert len(expected) > 100


def test_pages_name_the_guides_that_use_what_they_describe(site: dict[str, ModuleType]) -> None:
    reference = site["reference"]
    assert reference.guides_of("PartialPooling")[0] == "groups"
    assert reference.guides_of("metrics.smooth_ece") == ["report"]
    assert reference.guides_of("Posterior") == []
    assert "\nGuides: :doc:`/groups`, " in reference.page("PartialPooling")
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    assert pages == {*reference._guides()}


def test_sections_of_docstrings_begin_with_a_line_of_their_own(
    site: dict[str, ModuleType],
) -> None:
    for name in site["reference"].public_names():
        doc = inspect.getdoc(site["reference"].value_of(name)) or ""
        assert not re.search(r"\w -{3,}", doc), name


def test_pages_of_estimators_list_all_parameters(site: dict[str, ModuleType]) -> None:
    parameters, estimators = site["parameters"], 0
    for name in bc.__all__:
        kind = getattr(bc, name)
        if not (inspect.isclass(kind) and issubclass(kind, BaseEstimator)):
            continue
        doc = parameters.complete(kind, inspect.getdoc(kind))
        listed = [n for entry in parameters.entries(doc) for n in entry.names.split(", ")]
        assert sorted(listed) == sorted(inspect.signature(kind).parameters), name
        assert doc.count("\nParameters\n") == 1
        estimators += 1
        attributes = [n for e in parameters.entries(doc, "Attributes") for n in e.names.split(", ")]
        assert len(attributes) == len(set(attributes)) and doc.count("\nAttributes\n") <= 1, name
        if issubclass(kind, bc.Calibrator):
            assert {"classes_", "state_"} <= {*attributes}, name
        if issubclass(kind, bc.Calibrator | bc.Auto | bc.CalibratedClassifier | bc.MultiLabel):
            assert {"report_", "n_features_in_"} <= {*attributes}, name
    assert "posterior_ : ParameterPosterior\n" in parameters.complete(bc.Beta, bc.Beta.__doc__)
    assert estimators > 30
    assert "num_samples : int, default 1000\n" in parameters.complete(bc.Beta, bc.Beta.__doc__)


def test_every_calibrator_has_a_picture(site: dict[str, ModuleType]) -> None:
    kinds = {
        name
        for name in bc.__all__
        if inspect.isclass(kind := getattr(bc, name)) and issubclass(kind, bc.Calibrator)
    }
    assert set(site["pictures"].calibrators()) >= kinds - {"Calibrator"}


def test_pictures_show_a_truth_that_labels_follow(site: dict[str, ModuleType]) -> None:
    pictures = site["pictures"]
    for name, truth in pictures.MODELS.items():
        p, y = pictures.sample(name)
        mean, spread = truth(p).mean(), (truth(p) * (1 - truth(p))).mean() ** 0.5
        assert abs(y.mean() - mean) < 4 * spread / len(p) ** 0.5
        assert (truth(pictures.GRID)[1:] > truth(pictures.GRID)[:-1]).all()


def test_a_picture_is_small(site: dict[str, ModuleType], tmp_path: Path) -> None:
    site["pictures"].draw(bc.Beta(), tmp_path / "Beta.svg")
    text = (tmp_path / "Beta.svg").read_text("utf-8")
    assert "bent margin" in text
    assert len(text) < 100_000


def test_every_metric_and_loss_has_a_picture(site: dict[str, ModuleType]) -> None:
    drawn = site["measures"].drawings()
    assert {f"metrics.{name}" for name in METRICS} <= set(drawn)
    kinds = {n for n in vars(bc.losses) if n[0] != "_" and callable(getattr(bc.losses, n))}
    makers = {"instance_targets", "with_instance_targets"}
    assert {name for name in drawn if name.startswith("losses.")} == {
        f"losses.{name}" for name in kinds - makers
    }
    assert set(drawn) <= set(site["reference"].public_names())


def test_pictures_of_metrics_show_what_is_known(site: dict[str, ModuleType]) -> None:
    value = site["measures"].value
    assert value("true_calibration_error", 300, 1.0, 0) == [0.0]
    assert value("log_loss", 3000, 1.0, 0) < value("log_loss", 3000, 2.0, 0)
    predicted, realized = value("decision_cost", 3000, 1.0, 0)
    assert abs(predicted - realized) < 4 * 0.5 / 3000**0.5


def test_pictures_are_drawn_anew_where_code_changed(
    site: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = site["sources"]
    monkeypatch.setattr(sources, "ROOT", tmp_path)

    def digest(text: str) -> str:
        (tmp_path / "module.py").write_text(text, "utf-8")
        sources.digest.cache_clear()
        return sources.digest("module.py")

    first = digest('"""What it does."""\n\n\ndef f():\n    """Return one."""\n    return 1\n')
    assert digest('"""Other words."""\ndef f():\n    # a comment\n    return 1\n') == first
    assert (
        digest('"""What it does."""\n\n\ndef f():\n    """Return one."""\n    return 2\n') != first
    )
    sources.digest.cache_clear()


def test_what_only_the_site_shows(site: dict[str, ModuleType]) -> None:
    source = ["- [Start](start/index.md): now.\n<!-- site:\n- [All](reference/index.rst)\n-->\n"]
    site["pages"].show(None, "index", source)
    text, contents = source[0].split("```{toctree}")
    assert text.split() == [
        "-",
        "[Start](start/index.md):",
        "now.",
        "-",
        "[All](reference/index.rst)",
    ]
    assert contents.split() == [":hidden:", "start/index", "reference/index", "```"]


def test_bad_links_are_seen(site: dict[str, ModuleType], tmp_path: Path) -> None:
    (tmp_path / "good.html").write_text(
        '<p id="here">x</p> <a href="https://example.org">out</a> <a href="#here">up</a>'
        '<a href="bad.html">file</a> <a href="more">folder</a>'
    )
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "index.html").write_text('<a href="../good.html#here">back</a>')
    (tmp_path / "bad.html").write_text(
        '<a href="gone.html">x</a> <a href="good.html#gone">x</a>'
        '<script src="https://example.org/x.js"></script>'
    )
    assert site["build"].link_faults(tmp_path) == [
        "bad.html links to gone.html, which is not there",
        "bad.html links to good.html#gone, a place that is not there",
        "bad.html loads https://example.org/x.js",
    ]


def test_missing_pages_and_words_are_seen(site: dict[str, ModuleType], tmp_path: Path) -> None:
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "Beta.html").write_text('<dt id="bayescal.Beta">Beta</dt>')
    missing, names = site["build"].missing_names(tmp_path)
    assert len(missing) == names - 1
    assert "Beta" not in missing
    (tmp_path / "searchindex.js").write_text('Search.setIndex({"terms":{"isoton":1}})')
    assert site["build"].search_faults(tmp_path, ("isoton", "bet")) == [
        "the search does not find 'bet'"
    ]


def test_start_takes_five_minutes_to_read() -> None:
    words = (ROOT / "docs" / "start" / "index.md").read_text("utf-8").split()
    assert len(words) < 5 * 200


def test_version_is_the_same_everywhere() -> None:
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {bc.__version__}\n" in citation
    assert '\ndynamic = ["version"]\n' in (ROOT / "pyproject.toml").read_text("utf-8")
