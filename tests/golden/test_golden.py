"""Files that earlier versions wrote can be read, and give their recorded predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bayescal as bc
from bayescal.calibrators.catalog import MODULES
from tests.golden import cases
from tests.golden.cases import FOLDER, SAVED, SUFFIX, WITHOUT_FILE, WRITERS


def check(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    assert actual.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(actual[key], value, rtol=1e-12, atol=1e-300, err_msg=key)


@pytest.mark.parametrize("name", SAVED)
def test_estimators_are_read_and_predict_as_when_they_were_saved(name: str) -> None:
    content = cases.recorded(name)
    scores = content["scores"]
    if name == "Temperature-top_logits":  # a tuple of arrays
        scores = [tuple(np.asarray(part) for part in scores[0])]
    else:
        scores = [np.asarray(part) for part in scores]
    result = cases.predictions(cases.load(name), scores, content["groups"])
    check(result, content["expected"])


def test_a_monitor_continues_as_it_would_have() -> None:
    content = cases.recorded("Monitor")
    monitor = bc.Monitor.load(FOLDER / "Monitor.monitor.json")
    check(cases.continued(monitor, content["rest"]), content["expected"])


def test_every_class_that_can_be_saved_has_a_file() -> None:
    """Check calibrators and other exported classes with ``predict_proba``."""
    public = {*MODULES, *bc.__all__}
    classes = {name for name in public if name[0].isupper() and hasattr(_class(name), "fit")}
    saved = {name.partition("-")[0] for name in SAVED}
    assert {name for name in classes if hasattr(_class(name), "predict_proba")} <= (
        saved | WITHOUT_FILE.keys()
    )
    assert saved <= classes and not saved & WITHOUT_FILE.keys()


def _class(name: str) -> Any:
    return getattr(bc, name, None) or getattr(bc.calibrators, name)


def test_every_case_has_its_files_and_every_file_its_case() -> None:
    kept = {path.name for path in FOLDER.iterdir()}
    expected = {f"{name}.json" for name in WRITERS} | {f"{name}{SUFFIX}" for name in SAVED}
    assert kept == expected | {"Monitor.monitor.json"}
    files = [path for path in FOLDER.iterdir()]
    assert sum(path.stat().st_size for path in files) < 1_500_000
