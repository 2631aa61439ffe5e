"""scikit-learn's own tests of calibration and isotonic regression, run on bayescal.

The tests come from the installed scikit-learn; the plugin ``sklearn_names`` replaces its classes
with ours.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Number of array API tests that run when array_api_strict and PyTorch are installed.
ARRAY_API = 40
#: Tests that fail because bayescal differs on purpose, with the reason.
DIFFERENCES = {
    "test_calibration_curve_pos_label_error_str[str]": (
        "Of two strings the second in alphabetical order is positive, here as everywhere; "
        "scikit-learn asks for pos_label."
    ),
    "test_calibration_curve_pos_label_error_str[object]": "The same labels as objects.",
    "test_calibration_less_classes[True]": (
        "A class that a fold's classifier has never seen gets its frequency in the held-out rows; "
        "scikit-learn says that it is impossible, for which log loss is infinite."
    ),
}


@pytest.mark.slow
@pytest.mark.parity("torch")
@pytest.mark.parametrize(
    ("suite", "count"), [("test_calibration", 113), ("test_isotonic", 49)], ids=lambda x: str(x)
)
def test_tests_of_scikit_learn_pass(suite: str, count: int, tmp_path: Path) -> None:
    results = tmp_path / "results.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider"]
    command += ["-p", "tests.parity.sklearn_names", "--pyargs", f"sklearn.tests.{suite}"]
    # Displays need no screen, and SciPy must accept arrays of other libraries.
    settings = {"PYTHONPATH": str(ROOT), "MPLBACKEND": "agg", "SCIPY_ARRAY_API": "1"}
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | settings
    run = subprocess.run(
        [*command, f"--junitxml={results}"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert results.exists(), run.stdout + run.stderr
    cases = {str(case.get("name")): case for case in ElementTree.parse(results).iter("testcase")}
    ran = {name for name, case in cases.items() if case.find("skipped") is None}
    failed = {
        name
        for name in ran
        if cases[name].find("failure") is not None or cases[name].find("error") is not None
    }
    expected = DIFFERENCES.keys() & cases.keys()
    assert failed == expected, run.stdout[-6000:]
    assert len(ran) >= count, f"{len(ran)} tests ran"
    if suite == "test_calibration":
        # Array inputs return arrays of their library: NumPy, array_api_strict and PyTorch.
        array_api = {name for name in ran if "array_api" in name}
        assert len(array_api) >= ARRAY_API and not array_api & failed
        assert expected == DIFFERENCES.keys()
