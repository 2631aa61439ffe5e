"""Compare fits on an accelerator, emulated with JAX arrays on the CPU, with fits on the host."""

from __future__ import annotations

import inspect
import math
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone

import bayescal as bc
from bayescal._core.arrays import accelerated
from bayescal._core.execution.precision import float64
from bayescal.calibrators import auto
from bayescal.calibrators.binary import histogram
from bayescal.calibrators.multiclass import scale
from bayescal.calibrators.multiclass.members import Layout
from bayescal.calibrators.neighborhood import kernel as kernel_module
from bayescal.calibrators.stack import designs, on_device
from bayescal.calibrators.stack import fit as _stack
from bayescal.calibrators.stack import folds as _folds
from bayescal.calibrators.stack import mixture as _mixture
from bayescal.data import given, rows
from bayescal.data.order import equal_rows
from bayescal.data.rows import Rows
from bayescal.regression.binary import fit
from bayescal.regression.softmax import fit as softmax_fit
from tests.calibrators.cases import CASES, Array, Case, each
from tests.calibrators.discrete import add_rounding_errors

THERE = [c for c in CASES if inspect.isclass(c.calibrator) and "device" in c().sources]
#: One calibrator for each way to fit.
QUICK = ("AveragedBeta", "Beta", "Histogram", "Matrix", "Temperature")
#: A single fit uses the programs of a stack.
MODES = ["stack", pytest.param("single", marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def jax_as_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat JAX arrays as accelerator arrays on any device, without a fallback to the host."""
    monkeypatch.setattr(given, "accelerated", lambda x: x if isinstance(x, jax.Array) else None)


#: Number of single-precision rows, shared by all tests so that programs compile once.
MANY = 6000


def make_logits(binary: bool, n: int = 150) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(1)
    z = 2 * rng.normal(size=(n, 4))
    y = np.argmax(z / 2 + rng.gumbel(size=z.shape), axis=1)
    w = rng.integers(0, 3, n).astype(float)
    return (z[:, :2], (y % 2), w) if binary else (z, y, w)


def make_many_logits(binary: bool) -> tuple[Array, Array, Array]:
    z, y, w = make_logits(binary, MANY)
    return z, y, np.maximum(w, 1)


def softmax(z: Array) -> Array:
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def compare(calibrator: Any, scores: Array, y: Any, w: Any, tolerance: float = 1e-8) -> None:
    host = clone(calibrator).fit(scores, y, w)
    with float64():
        device_model = clone(calibrator).fit(jnp.asarray(scores), y, w)
    assert device_model.status_ == host.status_
    if hasattr(host, "objective_"):
        assert device_model.objective_ == pytest.approx(host.objective_, rel=tolerance)
    assert all(isinstance(value, np.ndarray) for value in device_model.state_.values())
    np.testing.assert_array_equal(device_model.classes_, host.classes_)
    assert device_model.n_features_in_ == host.n_features_in_
    new = host.predict_proba(scores)
    np.testing.assert_allclose(device_model.predict_proba(scores), new, atol=tolerance)


def test_which_fit_there() -> None:
    names = {case.calibrator.__name__ for case in THERE}
    assert {"Temperature", "Vector", "Matrix", "Dirichlet", "StructuredMatrix"} <= names
    assert {"StructuredVector", "Logistic", "Beta", "Quadratic", "Histogram"} <= names
    assert {"AveragedBeta", "OneVsRest", "StackedScaling", "Kernel"} <= names


@each(THERE)
def test_fits_are_those_of_the_host(case: Case) -> None:
    z, y, w = make_logits(case.binary)
    compare(case(inputs="logits"), z, y, w)
    if not case.options:
        # Integer weights count as repeated rows, which folds may separate; others do not.
        compare(case(inputs="probs"), softmax(z), y, w * np.linspace(0.5, 1, len(w)))


@each([case for case in THERE if not case.options])
def test_missing_classes_and_zeros(case: Case) -> None:
    z, y, w = make_logits(case.binary)
    p = softmax(z)
    p[::7, 0] = 0
    p /= p.sum(axis=1, keepdims=True)
    compare(case(), p, y, w)
    compare(case(inputs="logits"), 1e6 * z, y, w)
    if not case.binary:
        # Keep the number of rows, so that programs are compiled once.
        some = np.resize(np.flatnonzero(y < 3), len(y))
        compare(case(inputs="logits", classes=[0, 1, 2, 3]), z[some], y[some], w[some])
        names = np.array(["a", "b", "c", "d"])
        compare(case(inputs="logits"), z, names[y], w)


@each([c for c in THERE if not c.options and c.calibrator.__name__ in QUICK])
def test_scores_of_single_precision(case: Case) -> None:
    """Check that the fit reaches the host's objective up to a relative error of 1e-6."""
    z, y, w = make_many_logits(case.binary)
    z, w = z.astype(np.float32), np.maximum(w, 1)
    host = case(inputs="logits").fit(z, y, w)
    device_model = case(inputs="logits").fit(jnp.asarray(z), y, w)
    if hasattr(host, "objective_"):
        assert device_model.objective_ == pytest.approx(host.objective_, rel=1e-6)
    np.testing.assert_allclose(device_model.predict_proba(z), host.predict_proba(z), atol=1e-5)


@pytest.mark.parametrize("calibrator", [bc.Temperature(), bc.Vector(), bc.Dirichlet(), bc.Beta()])
def test_what_is_wrong_is_said_as_on_the_host(calibrator: Any) -> None:
    p = softmax(make_logits(calibrator.binary)[0])
    y, bad, high, sums = make_logits(calibrator.binary)[1], p.copy(), p.copy(), p.copy()
    bad[3, 1], high[2, 1], sums[4, 0] = np.nan, 1.5, 0.99
    for wrong, message in ((bad, "NaN"), (high, r"\[0, 1\]"), (sums, "sum to one")):
        with pytest.raises(ValueError, match=message):
            calibrator.fit(jnp.asarray(wrong), y)
    with pytest.raises(ValueError, match="y must have shape"):
        calibrator.fit(jnp.asarray(p), y[:-1])
    with pytest.raises(ValueError, match="missing"):
        calibrator.fit(jnp.asarray(p), np.where(y == 1, np.nan, y))


def test_many_rows_of_two_classes() -> None:
    """Check that rows are counted in cells on device, also by the default calibrator."""
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=50_000)
    y = (rng.random(len(z)) < 1 / (1 + np.exp(-z))).astype(int)
    compare(bc.AveragedBeta(inputs="logits"), z, y, None)
    compare(bc.AveragedBeta(), 1 / (1 + np.exp(-z)), y, np.repeat([1.0, 2.0], 25_000))
    compare(
        bc.OneVsRest(bc.Beta()),
        softmax(make_logits(False, 900)[0]),
        make_logits(False, 900)[1],
        None,
    )


def test_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "accelerated", lambda x: x if isinstance(x, jax.Array) else None)
    for binary in (True, False):
        z, y, w = make_logits(binary)
        host = bc.Auto(inputs="logits").fit(z, y, w).predict_proba(z)
        with float64():
            device_probs = bc.Auto(inputs="logits").fit(jnp.asarray(z), y, w).predict_proba(z)
        np.testing.assert_allclose(device_probs, host, atol=1e-8)


@pytest.fixture
def largest_copy(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the size of the largest array that is converted to NumPy, in a list of one number."""
    real, result = np.asarray, [0]

    def spy(value: Any, *args: Any, **options: Any) -> Any:
        if isinstance(value, jax.Array):
            result[0] = max(result[0], value.size)
        return real(value, *args, **options)

    monkeypatch.setattr(np, "asarray", spy)
    return result


@pytest.mark.slow
def test_scores_are_never_copied_to_the_host(largest_copy: list[int]) -> None:
    """Check that no array of the size of 6,000 rows by four columns is converted to NumPy."""
    z, y, w = make_many_logits(binary=False)
    scores = jnp.asarray(z, jnp.float32)
    for calibrator in (bc.Temperature, bc.Vector, bc.Dirichlet, bc.StructuredMatrix, bc.OneVsRest):
        calibrator(inputs="logits").fit(scores, y, w)
    bc.Histogram(binning="equal_mass", inputs="logits").fit(scores[:, 0], y % 2)
    assert 0 < largest_copy[0] < 100


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_of_stacks_come_one_number_for_each_row(
    monkeypatch: pytest.MonkeyPatch, largest_copy: list[int], mode: Any
) -> None:
    """Check that stacks copy at most one number per row: fold keys and losses."""
    monkeypatch.setattr(auto, "accelerated", lambda x: x if isinstance(x, jax.Array) else None)
    z, y, _ = make_many_logits(binary=False)
    bc.Auto(inputs="logits", mode=mode).fit(jnp.asarray(z, jnp.float32), y)
    assert largest_copy[0] == MANY


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_stacks_of_many_scores(monkeypatch: pytest.MonkeyPatch, mode: Any) -> None:
    """Check double precision against the host; single-precision steps end slightly elsewhere."""
    z, y, w = make_logits(binary=False, n=15_000)
    stacked = bc.StackedScaling(mode, inputs="logits")
    with float64():
        p = [stacked.fit(scores, y, w).predict_proba(z) for scores in (z, jnp.asarray(z))]
    np.testing.assert_allclose(p[0], p[1], atol=1e-3)
    losses = [bc.metrics.log_loss(probs, y, weights=w) for probs in p]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    for module in (_stack, designs):
        monkeypatch.setattr(module, "working_type", lambda size: np.float64)
    monkeypatch.setattr(scale, "_PART", 10**6)
    compare(stacked, z, y, w)


@pytest.mark.slow
def test_stacks_of_very_many_classes() -> None:
    """Check many classes, with main directions found in single precision on device and host."""
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(100, 310))
    y = np.argmax(z[:, :30] / 2 + rng.gumbel(size=(100, 30)), axis=1)
    for mode in ("stack", "single"):
        compare(bc.StackedScaling(mode, inputs="logits", classes=range(310)), z, y, None, 1e-6)


def test_on_a_processor_the_host_fits() -> None:
    assert accelerated(jnp.ones(3)) is None and accelerated(np.ones(3)) is None


class Lowered:
    """Export programs for both kinds of accelerators when they are first called."""

    platforms = "cuda", "tpu"

    def __init__(self) -> None:
        self.exported = set[tuple[str, Any]]()

    def __call__(self, function: Any) -> Any:
        static = (Layout, str)

        def shape(a: Any) -> Any:
            return a if isinstance(a, static) else jax.typeof(jnp.asarray(a))

        def run(*args: Any, **options: Any) -> Any:
            shapes = jax.tree.map(shape, args, is_leaf=lambda a: isinstance(a, static))
            key = function.__name__, str((shapes, options))
            if key not in self.exported:
                program = jax.export.export(function, platforms=self.platforms)(*shapes, **options)
                assert program.platforms == self.platforms
                self.exported.add(key)
            return function(*args, **options)

        return run

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.exported}


@pytest.fixture
def lowered() -> Lowered:
    return Lowered()


@pytest.mark.slow
def test_programs_are_lowered_for_accelerators(
    monkeypatch: pytest.MonkeyPatch, lowered: Lowered
) -> None:
    """Check that every program that a fit runs on device can be exported."""
    compiled = rows.compiled
    monkeypatch.setattr(rows, "compiled", lambda *given: lowered(compiled(*given)))
    monkeypatch.setattr(softmax_fit, "fit_one", lowered(softmax_fit.fit_one))

    def regression(problem: Any, lasso: bool) -> Any:
        return lowered(jax.jit(lambda given: fit.fit_one(given, lasso)))(problem)

    monkeypatch.setattr(fit, "_fit_compiled", regression)
    z, y, w = make_logits(binary=False)
    for several in (bc.Temperature, bc.Vector, bc.Dirichlet):
        several(inputs="logits").fit(jnp.asarray(z, jnp.float32), y, w)
    z, y, w = make_logits(binary=True)
    bc.Beta(inputs="logits").fit(jnp.asarray(z, jnp.float32), y, w)
    assert lowered.names == {"columns_of_logits", "_terms", "fit_one", "<lambda>"}


@pytest.mark.slow
def test_programs_of_stacks_are_lowered(monkeypatch: pytest.MonkeyPatch, lowered: Lowered) -> None:
    """Check stacks of few, many and very many classes."""
    device_functions = ("_smooth", "_losses", "_held_out", "_together")
    mixing = ("_parts_there", "_mix_terms_there", "_log_mean_there")
    keys = ("_device_keys",)
    for module, names in ((_folds, keys), (on_device, device_functions), (_mixture, mixing)):
        for name in names:
            monkeypatch.setattr(module, name, lowered(getattr(module, name)))
    rng = np.random.default_rng(0)
    for k in (4, 15, 310):
        y, z = np.arange(40) % 4, jnp.asarray(rng.normal(size=(40, k)), jnp.float32)
        bc.StackedScaling(inputs="logits", folds=2, classes=range(k)).fit(z, y)
    assert lowered.names == {*keys, *device_functions, "_parts", "mix_terms", "log_mean"}


@pytest.mark.parametrize("bins", [1, 7, 400])
def test_bins_of_equal_mass(bins: int) -> None:
    """Check that ties stay in one bin and that borders equal those on the host."""
    rng = np.random.default_rng(0)
    levels = rng.integers(1, 10, 500) / 10
    near = add_rounding_errors(levels, rng), add_rounding_errors(levels.astype(np.float32), rng)
    for scores in (rng.random(500), rng.random(500).round(1), *near, np.full(20, 0.3), np.ones(1)):
        y, w = rng.integers(0, 2, len(scores)), rng.integers(0, 3, len(scores)) + 1.0
        for weights in (w, w / 3, None):
            calibrator = bc.Histogram(bins, "equal_mass", classes=[0, 1])
            host = calibrator.fit(scores, y, weights).state_
            with float64():
                device_state = calibrator.fit(jnp.asarray(scores), y, weights).state_
            for name in ("edges", "values", "bin_weights"):
                np.testing.assert_allclose(device_state[name], host[name], atol=1e-12)


KERNELS = ("dirichlet", "dirichlet_mixture", "rbf")


def make_probs(n: int) -> tuple[Array, Array, Array]:
    """Return probabilities with some ties, labels and weights."""
    z, y, w = make_logits(binary=False, n=n)
    z[n // 2 : n // 2 + 9] = z[:9]
    return softmax(z), y, w + 1


@pytest.mark.parametrize("bandwidth", ["cv", 0.1])
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_are_those_of_the_host(kernel: Any, bandwidth: Any) -> None:
    p, y, w = make_probs(150)
    for assumption in ("errors", "labels"):
        calibrator = bc.Kernel(kernel, bandwidth, assumption)
        compare(calibrator, p, y, w)
        compare(calibrator.set_params(inputs="logits"), np.log(p), y, w)
    w = w + np.linspace(0, 0.9, len(w))  # integer weights would count as repeated rows
    host = bc.Kernel(kernel, bandwidth).fit(p, y, w).state_
    with float64():
        device_state = bc.Kernel(kernel, bandwidth).fit(jnp.asarray(p), y, w).state_
    assert device_state["bandwidth"] == host["bandwidth"]
    assert device_state["points"].shape == host["points"].shape == (141, 4)
    if bandwidth == "cv":
        np.testing.assert_allclose(device_state["cv_losses"], host["cv_losses"], rtol=1e-10)


def test_kernels_of_certain_rows() -> None:
    p, y, w = make_probs(150)
    p[::3] = np.eye(4)[y[::3]]
    compare(bc.Kernel(), p, y, w)


@pytest.mark.parametrize("kernel", KERNELS)
def test_bandwidths_are_chosen_there(largest_copy: list[int], kernel: Any) -> None:
    """Check that choosing a bandwidth copies only hashes and keys to the host."""
    p, y, w = make_probs(150)
    with float64(), jax.numpy_dtype_promotion("standard"):
        state = bc.Kernel(kernel)._fit(Rows(jnp.asarray(p), y, w), 0)
    assert isinstance(state["points"], jax.Array)
    assert largest_copy[0] == 150


def test_pairs_of_rows_are_never_held() -> None:
    """Check that no array in the program is as large as a tenth of all pairs of rows."""
    n = 20_000
    with float64():
        scores, labels, weights = (
            jax.ShapeDtypeStruct(shape, kind)
            for shape, kind in (((n, 4), float), ((n,), int), ((n,), float))
        )
        program = jax.make_jaxpr(kernel_module._losses_on_device, static_argnums=(0, 1))(
            "dirichlet_mixture", "errors", scores, labels, weights, labels, 1e-3
        )
    shapes = re.findall(r"\w\d+\[([\d,]+)\]", str(program))
    sizes = [math.prod(map(int, shape.split(","))) for shape in shapes]
    assert n * 16 <= max(sizes) < n * n / 10


@pytest.mark.slow
def test_programs_of_kernels_are_lowered(monkeypatch: pytest.MonkeyPatch, lowered: Lowered) -> None:
    names = ("_hash_on_device", "_equal_on_device")
    for name in names:
        monkeypatch.setattr(equal_rows, name, lowered(getattr(equal_rows, name)))
    monkeypatch.setattr(
        kernel_module, "_losses_on_device", lowered(kernel_module._losses_on_device)
    )
    p, y, w = make_probs(40)
    for kernel in KERNELS:
        bc.Kernel(kernel).fit(jnp.asarray(p, jnp.float32), y, w)
    assert lowered.names == {*names, "_losses_on_device"}
    assert len(lowered.exported) == 7


def test_bins_of_equal_mass_are_lowered() -> None:
    with float64():
        row, whole = jax.ShapeDtypeStruct((300,), float), jax.ShapeDtypeStruct((), bool)
        cut = jax.export.export(histogram._cut_on_device, platforms=Lowered.platforms)
        assert cut(row, row, row, 10, whole, False).platforms == Lowered.platforms
