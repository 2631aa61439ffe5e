"""Run everything once, without pytest: `python -W ignore tests/smoke.py`.

Meant for libraries at their lower bounds, which warn about newer dependencies.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import numpyro.distributions as dist

import bayescal as bc
from bayescal.calibrators.catalog import METHODS
from bayescal.calibrators.names import make_calibrator
from bayescal.cli import app
from bayescal.cli._examples import EXAMPLES
from bayescal.inference import INTEGRATORS

ROOT = Path(__file__).resolve().parents[1]
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(90, 3))
Y = np.argmax(LOGITS + RNG.gumbel(size=(90, 3)), axis=1)


def run_readme() -> None:
    """Run the examples of README.md."""
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S):
        exec(compile(block, "README.md", "exec"), {})


def run_calibrator(name: str) -> None:
    """Fit, predict, save, load and export as a function, for two and for three classes."""
    for k in (2, 3):
        calibrator = make_calibrator(name, inputs="logits")
        if k == 3 and getattr(calibrator, "binary", False):
            continue
        scores, y = (LOGITS[:, 1] - LOGITS[:, 0], Y == 1) if k == 2 else (LOGITS, Y)
        calibrator.fit(scores, y)
        probs = calibrator.predict_proba(scores)
        np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-6)
        bc.save(calibrator, f"{name}.safetensors")
        loaded = bc.load(f"{name}.safetensors")
        np.testing.assert_array_equal(loaded.predict_proba(scores), probs)
        np.testing.assert_allclose(loaded.as_function()(scores), probs, atol=1e-4)


def run_integrator(name: str) -> None:
    """Predict with a known generative model."""
    known, points = (LOGITS[:, 0], (Y == 0).astype(int)), [-1.0, 1.0]
    if name == "closed_form":
        prior = bc.NormalInverseGammaPrior(-1.0, 1.0, kappa0=1.0, kappa1=1.0, alpha=2.0, beta=2.0)
    else:
        prior = bc.GaussianPrior(mu0=dist.Normal(-1, 1), mu1=dist.Normal(1, 1), sigma=1.0)
    result = bc.posterior_predict(prior, known, points, integrator=name, key=0)
    assert np.isfinite(result.probs).all()


def run_plot(name: str) -> None:
    """Run the example in a docstring."""
    examples = doctest.DocTestParser().get_examples(getattr(bc.plots, name).__doc__)
    names = {"np": np, **vars(bc.plots)}
    for example in examples:
        exec(compile(example.source, name, "single"), names)


def run_report() -> None:
    """Write a report page and the export formats."""
    scores = LOGITS - LOGITS.max(axis=1, keepdims=True)
    probs = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    result = bc.evaluate({"a": probs, "b": probs**2 / (probs**2).sum(1, keepdims=True)}, Y)
    assert "</html>" in result.to_html()
    calibrator = bc.Temperature(inputs="logits").fit(LOGITS, Y)
    for ending in ("stablehlo", "onnx"):
        bc.export(calibrator, f"temperature.{ending}")


def run_commands() -> None:
    """Run the examples in the help of all commands."""
    import pyarrow
    from pyarrow import csv, parquet

    p = 1 / (1 + np.exp(-LOGITS[:, 0]))
    columns = {"y": (Y == 0).astype(int), "s": LOGITS[:, 0], "p": p, "q": p**1.1}
    new = pyarrow.table({"s": columns["s"], "p": p})
    csv.write_csv(pyarrow.table(columns), "scores.csv")
    csv.write_csv(new, "new.csv")
    parquet.write_table(new, "new.parquet")
    names = np.array(["ape", "bee", "cat"])
    kinds = dict(zip(names, LOGITS.T, strict=True))
    parquet.write_table(pyarrow.table({**kinds, "class": names[Y]}), "logits.parquet")
    for line in "".join(EXAMPLES.values()).replace("\\\n", "").strip().split("\n"):
        code = app(shlex.split(line)[1:], standalone_mode=False)
        assert code == 0, line


def main() -> None:
    """Run all checks, and exit with the failures."""
    matplotlib.use("Agg")
    steps: list[tuple[str, Callable[[], None]]] = [("README", run_readme)]
    for run, names in (
        (run_calibrator, METHODS),
        (run_integrator, INTEGRATORS),
        (run_plot, [name for name in vars(bc.plots) if name[0] != "_" and name != "style"]),
    ):
        steps += [(name, lambda run=run, name=name: run(name)) for name in names]
    steps += [("report", run_report), ("commands", run_commands)]
    wrong = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, run in steps:
            start = time.perf_counter()
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    run()
            except Exception as error:
                wrong.append(f"{name}: {type(error).__name__}: {error}")
            print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    main()
