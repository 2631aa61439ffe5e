"""The top-level package: names are visible to tools, and imported on first use."""

import ast
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

import bayescal as bc
from bayescal.calibrators.catalog import METHODS, MODULES, summary

ROOT = Path(__file__).resolve().parents[1]


def run_fresh(code: str, *arguments: str) -> str:
    """Run code in a separate process, and return its output."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def names_of_type_checkers() -> Iterator[tuple[str, str]]:
    """Yield module and name of everything that the package imports for type checkers."""
    tree = ast.parse(Path(bc.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.name == "*" or alias.name == alias.asname
            yield node.module or "", alias.name


def test_type_checkers_and_python_find_the_same() -> None:
    assert {*names_of_type_checkers()} == {
        *(("bayescal", name) for name in bc._PUBLIC_MODULES),
        *((f"bayescal.{module}", name) for name, module in bc._MODULE_OF.items()),
        ("bayescal.calibrators", "*"),
    }


def test_type_checkers_and_python_know_the_same_calibrators() -> None:
    tree = ast.parse(Path(bc.calibrators.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == alias.asname
    }
    assert imported == {name: f"bayescal.calibrators.{module}" for name, module in MODULES.items()}


def test_catalog_describes_the_calibrators_as_their_classes_do() -> None:
    for name in METHODS:
        kind = getattr(bc, name)
        assert kind.__doc__.splitlines()[0] == summary(name)
        assert getattr(kind, "binary", False) == MODULES[name].startswith("binary.")


def test_import_is_only_a_table() -> None:
    code = "import sys; before = {*sys.modules}; import bayescal; print(*{*sys.modules} - before)"
    loaded = {name.split(".")[0] for name in run_fresh(code).split()}
    assert "bayescal" in loaded
    assert loaded - {*sys.stdlib_module_names} == {"bayescal"}


USES = {
    "the function": "bc.posterior",
    "the module": "import bayescal.posterior",
    "a name of it": "from bayescal.posterior import posterior_predict",
    "a user of it": "bc.sweep",
}


@pytest.mark.slow
@pytest.mark.parametrize("order", list(permutations(USES, 2)), ids=", then ".join)
def test_posterior_is_the_function_whatever_was_imported_first(order: tuple[str, str]) -> None:
    lines = ["import bayescal as bc", *(USES[use] for use in order)]
    lines += [
        "from bayescal import posterior",
        "assert posterior is bc.posterior is sys.modules['bayescal.posterior'].posterior",
        "print(type(bc.posterior).__name__, type(bc.metrics).__name__, bc.evaluate.__module__)",
    ]
    code = "import sys\n" + "\n".join(lines)
    assert run_fresh(code) == "function module bayescal.evaluation._evaluate\n"


def test_every_name_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    public = set(bc.__all__)
    code = "before = {*dir(), 'before'}\nfrom bayescal import *\nprint(*{*dir()} - before)"
    assert {*run_fresh(code).split()} == public
    assert public <= {*dir(bc)}
    assert {"posterior", "metrics", "Beta", "Blocks", "export", "losses"} <= public
    assert all(hasattr(bc, name) for name in public)
    # Attributes can be replaced, as tests do.
    monkeypatch.setattr(bc, "posterior", len)
    assert bc.posterior is len


@pytest.mark.parametrize("name", ["nonsense", "_nonsense", "__wrapped__", "metrics.ece", ""])
def test_other_names_are_not(name: str) -> None:
    with pytest.raises(AttributeError, match="module 'bayescal' has no attribute"):
        getattr(bc, name)


@pytest.mark.slow
def test_pickles_are_read_where_nothing_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "pickle"
    values = [bc.posterior, bc.evaluate, bc.GaussianPrior(mu0=-1.0, mu1=1.0, sigma=1.0), bc.Beta()]
    path.write_bytes(pickle.dumps(values))
    code = "import pickle, sys; print(*map(repr, pickle.load(open(sys.argv[1], 'rb'))), sep='\\n')"
    result = run_fresh(code, str(path)).splitlines()
    assert result[0].startswith("<function posterior at ")
    assert result[1].startswith("<function evaluate at ")
    assert result[2:] == [repr(value) for value in values[2:]]


@pytest.mark.slow
def test_type_checkers_see_every_name_and_no_other(tmp_path: Path) -> None:
    pytest.importorskip("pyright")
    lines = ["import bayescal as bc", *(f"reveal_type(bc.{name})" for name in bc.__all__)]
    file = tmp_path / "user.py"
    file.write_text("\n".join([*lines, "bc.nonsense"]))
    line = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*line, str(file)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    diagnostics = json.loads(done.stdout)["generalDiagnostics"]
    *result, wrong = [
        diagnostic["message"] for diagnostic in diagnostics if diagnostic["severity"] != "warning"
    ]
    assert wrong.startswith('"nonsense" is not a known attribute of module "bayescal"')
    assert len(result) == len(bc.__all__)
    assert not [message for message in result if message.endswith(('is "Any"', 'is "Unknown"'))]


FITS_WITHOUT_JAX = """
import numpy as np, sys
import bayescal as bc

p = np.linspace(0.01, 0.99, 400)
y = np.arange(400) % 7 < 7 * p**2
three = np.stack([p, 1 - p, 0 * p + 0.5], axis=1) / 1.5
names = "Auto AveragedBeta BBQ Beta CDFSpline CenteredIsotonic Histogram Isotonic Logistic"
for name in (names + " NearIsotonic Quadratic ScalingBinning Spline Temperature VennAbers").split():
    calibrator = getattr(bc, name)().fit(p, y)
    calibrator.predict_proba(p)
    calibrator.predict(p)
    repr(calibrator), calibrator.report_
    print(name, "jax" in sys.modules)
for calibrator in (bc.Temperature(), bc.Auto(), bc.StackedScaling(), bc.Auto(mode="single")):
    calibrator.fit(three, np.arange(400) % 3).predict_proba(three)
    repr(calibrator), calibrator.report_
    print(repr(calibrator), "for three classes", "jax" in sys.modules)
bc.Auto().fit(three, three > 0.3).predict_proba(three)
print("three labels", "jax" in sys.modules)
bc.save(bc.Auto().fit(p, y), sys.argv[1])
bc.load(sys.argv[1]).as_function()(p)
print("a function from a file", "jax" in sys.modules)
bc.metrics.report({"first": three, "second": three[:, ::-1]}, np.arange(400) % 3)
bc.metrics.difference("log_loss", p, p**2, y)
print("report", "jax" in sys.modules)
bc.evaluate({"first": p, "second": p**2}, y).to_markdown()
print("evaluation", "jax" in sys.modules)
for name in "accuracy brier_score corp debiased_ece ecce ece kde_ece log_loss smooth_ece".split():
    getattr(bc.metrics, name)(p, y)
    print(name, "jax" in sys.modules)
for name in "accuracy brier_score debiased_ece ece log_loss".split():
    getattr(bc.metrics, name)(three.astype(np.float32), np.arange(400) % 3)
    print(name, "jax" in sys.modules)
"""


def test_numpy_arrays_are_calibrated_and_measured_without_importing_jax(tmp_path: Path) -> None:
    lines = run_fresh(FITS_WITHOUT_JAX, str(tmp_path / "calibrator.bcal")).splitlines()
    assert len(lines) == 37
    assert [line for line in lines if not line.endswith(" False")] == []


@pytest.mark.slow
def test_functions_of_calibrators_and_priors_are_trees_of_a_later_jax() -> None:
    code = """
import numpy as np
import bayescal as bc

f = bc.Beta().fit([0.2, 0.6, 0.9], [0, 1, 1]).as_function()
import importlib.util
assert importlib.util.find_spec("jax").name == "jax"
import jax
prior = bc.GaussianPrior(mu0=-1.0, mu1=1.0, sigma=1.0)
scores = jax.numpy.array([0.3, 0.7])
print(np.abs(jax.jit(lambda f, x: f(x))(f, scores) - f(np.array([0.3, 0.7]))).max() < 1e-5)
print(len(jax.tree.leaves(prior)), type(jax.__loader__).__name__)
"""
    assert run_fresh(code).split() == ["True", "3", "SourceFileLoader"]
