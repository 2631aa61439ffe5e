"""Run scikit-learn's array API checks; called by test_dispatch.py.

SciPy decides at import time whether it accepts such arrays, so this module runs in a separate
process: ``SCIPY_ARRAY_API=1 python -m tests.calibrators.dispatched array_api_strict``.
"""

from __future__ import annotations

import dataclasses
import sys
import warnings
from typing import Any

import array_api_compat
import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.frozen import FrozenEstimator
from sklearn.naive_bayes import GaussianNB
from sklearn.utils._array_api import yield_namespace_device_dtype_combinations
from sklearn.utils.estimator_checks import (
    check_array_api_input,
    check_array_api_same_namespace,
)

import bayescal as bc
from tests.calibrators.cases import DEFAULTS

#: Options that replace long searches.
QUICK: dict[str, dict[str, Any]] = {
    "Kernel": {"bandwidth": 0.1},
    "OrderPreserving": {"hidden": (2, 2)},
}


class OneColumn:
    """A calibrator that declares to scikit-learn's checks that it takes one score."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # pyright: ignore[reportAttributeAccessIssue]
        tags.input_tags.one_d_array = True
        return tags


def checked_estimators() -> list[Any]:
    """List calibrators of log odds, or of ten logits with labels from the first two classes."""
    result: list[Any] = [
        bc.LogisticRegression(penalty="l2", strength=1.0),
        bc.OneVsRest(bc.Beta(), inputs="logits", classes=range(10)),
        bc.Average([bc.Temperature(inputs="logits", classes=range(10))]),
        bc.compose(bc.Vector(inputs="logits"), bc.Temperature()).set_params(classes=range(10)),
        bc.Auto(inputs="logits", classes=range(10)),
        bc.CalibratedClassifier(GaussianNB(), calibrator=bc.Beta()),
    ]
    for case in DEFAULTS:
        name = case.calibrator.__name__
        options = {**case.options, **QUICK.get(name, {}), "inputs": "logits"}
        if case.binary:
            subclass = type(name, (OneColumn, case.calibrator), {"__module__": __name__})
            result.append(dataclasses.dataclass(eq=False, repr=False)(subclass)(**options))
        elif "classes" in case.calibrator().get_params():
            result.append(case.calibrator(**options, classes=range(10)))
    return result


def check(estimator: Any, library: str) -> None:
    name = type(estimator).__name__
    for namespace, device, dtype in yield_namespace_device_dtype_combinations():
        if namespace != library or device in ("cuda", "xpu", "mps"):
            continue
        check_array_api_input(name, estimator, namespace, device, dtype, check_sample_weight=True)
    if library == "array_api_strict":
        check_array_api_same_namespace(name, estimator, library)


def array_function(library: str) -> Any:
    """Return a function that creates arrays of a library."""
    if library == "torch":
        import torch

        return torch.asarray
    if library == "jax":
        import jax.numpy

        return jax.numpy.asarray
    import array_api_strict

    return array_api_strict.asarray


def compare(library: str) -> None:
    """Check that results equal those of NumPy arrays and are arrays of the library."""
    rng, make = np.random.default_rng(0), array_function(library)
    z = rng.normal(size=(90, 3)).astype(np.float32).astype(float)
    y = np.argmax(z + rng.gumbel(size=z.shape), axis=1)
    single = library == "jax"  # without its double precision
    # Each of the three maps in OneVsRest adds 1e-6.
    tolerance = 3e-6 if single else 1e-12
    laplace = {"inference": "laplace", "num_samples": 200, "random_state": 0}
    for estimator in (
        bc.Vector(inputs="logits", **laplace),  # type: ignore[arg-type]
        bc.Auto(inputs="logits"),
        bc.OneVsRest(bc.Isotonic(), inputs="logits"),
        bc.OneVsRest(bc.Beta(**laplace), inputs="logits"),  # type: ignore[arg-type]
        bc.OneVsOne(bc.Beta(**laplace), inputs="logits"),  # type: ignore[arg-type]
        bc.CalibratedClassifier(GaussianNB(), calibrator=bc.Temperature()),
    ):
        expected = clone(estimator).fit(z, y)
        with config_context(array_api_dispatch=True):
            result = clone(estimator).fit(make(z), make(y))
            same = array_api_compat.array_namespace(make(z))
            probs, most = result.predict_proba(make(z)), result.predict(make(z))
            assert all(array_api_compat.array_namespace(a) == same for a in (probs, most))
            np.testing.assert_allclose(np.asarray(probs), expected.predict_proba(z), atol=tolerance)
            np.testing.assert_array_equal(np.asarray(most), expected.predict(z))
            # Numbers of single precision are computed in double precision, if there is one.
            narrow = result.predict_proba(make(z.astype(np.float32)))
            np.testing.assert_allclose(
                np.asarray(narrow), expected.predict_proba(z), atol=tolerance
            )
            kinds = bc.Vector | bc.OneVsRest | bc.OneVsOne
            if isinstance(result, kinds) and hasattr(result, "predict_interval"):
                ends = result.predict_interval(make(z), 0.8), expected.predict_interval(z, 0.8)
                for one, other in zip(*ends, strict=True):
                    assert array_api_compat.array_namespace(one) == same
                    # Distances of ends from the probabilities have the errors of both.
                    np.testing.assert_allclose(np.asarray(one), other, atol=2 * tolerance)
            # Arrays of strings exist only in NumPy.
            named = clone(estimator).fit(make(z), np.array(["a", "b", "c"])[y])
            assert list(named.predict(make(z))) == ["abc"[label] for label in expected.predict(z)]
            for wrong, message in ((z[:, :2], "features"), (z * np.nan, "NaN")):
                with pytest.raises(ValueError, match=message):
                    result.predict_proba(make(wrong))
            with pytest.raises(ValueError, match="must use the same namespace"):
                result.predict_proba(z)
            # An estimator fitted to NumPy arrays predicts from arrays of any library.
            again = np.asarray(expected.predict_proba(make(z)))
            np.testing.assert_allclose(again, expected.predict_proba(z), atol=tolerance)
        plain = result.predict_proba(z)
        np.testing.assert_allclose(plain, expected.predict_proba(z), atol=tolerance)
        # Lists and tables are not dispatched.
        for convert in (np.ndarray.tolist, pd.DataFrame):
            with config_context(array_api_dispatch=True):
                plain = np.asarray(clone(estimator).fit(convert(z), y).predict_proba(convert(z)))
            np.testing.assert_allclose(plain, expected.predict_proba(z), atol=1e-6)
        # A new fit replaces the function of the earlier one.
        expected.fit(2 * z, y)
        with config_context(array_api_dispatch=True):
            again = np.asarray(expected.predict_proba(make(z)))
        np.testing.assert_allclose(again, expected.predict_proba(z), atol=tolerance)
    several = rng.random(z.shape) < 0.6
    labels = bc.MultiLabel(bc.Beta(inputs="logits")).fit(z, several)
    with config_context(array_api_dispatch=True):
        result = bc.MultiLabel(bc.Beta(inputs="logits")).fit(make(z), make(several))
        probs = np.asarray(result.predict_proba(make(z)))
        np.testing.assert_allclose(probs, labels.predict_proba(z), atol=tolerance)
        assert np.array_equal(np.asarray(result.predict(make(z))), labels.predict(z))


def compare_classifier(library: str) -> None:
    """Check that a fitted classifier that takes the library's arrays receives them."""
    rng, make = np.random.default_rng(0), array_function(library)
    x = rng.normal(size=(90, 4))
    y = np.argmax(x[:, :3] + rng.gumbel(size=(90, 3)), axis=1)
    calibrator = bc.Temperature()
    model = FrozenEstimator(LinearDiscriminantAnalysis().fit(x, y))
    expected = bc.CalibratedClassifier(model, calibrator=calibrator).fit(x, y).predict_proba(x)
    with config_context(array_api_dispatch=True):
        model = FrozenEstimator(LinearDiscriminantAnalysis().fit(make(x), make(y)))
        result = bc.CalibratedClassifier(model, calibrator=calibrator).fit(make(x), make(y))
        probs = result.predict_proba(make(x))
        assert type(probs) is type(make(x))
        np.testing.assert_allclose(np.asarray(probs), expected, atol=1e-10)
        most = np.asarray(result.predict(make(x)))
        np.testing.assert_array_equal(most, np.argmax(expected, axis=1))


def compare_dask() -> None:
    """Check that Dask arrays are read in blocks even with array API dispatch enabled."""
    import dask.array as da

    rng = np.random.default_rng(0)
    z = rng.normal(size=(90, 3))
    y = np.argmax(z + rng.gumbel(size=z.shape), axis=1)
    rows = da.from_array(z, chunks=(40, 3)), da.from_array(y, chunks=40)
    for weights in (None, da.ones(90, chunks=40)):
        expected = bc.Vector(inputs="logits").fit(*rows, sample_weight=weights)
        with config_context(array_api_dispatch=True):
            result = bc.Vector(inputs="logits").fit(*rows, sample_weight=weights)
            np.testing.assert_array_equal(result.coef_, expected.coef_)
            probs = result.predict_proba(rows[0])
        np.testing.assert_array_equal(np.asarray(probs), expected.predict_proba(z))


def main() -> None:
    library = sys.argv[1]
    if library == "dask":
        return compare_dask()
    compare(library)
    if library != "jax":
        compare_classifier(library)
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", bc.SamplingWarning)
    from sklearn.exceptions import ConvergenceWarning

    warnings.simplefilter("ignore", ConvergenceWarning)
    failed = {}
    for estimator in checked_estimators():
        try:
            check(estimator, library)
        except Exception as error:
            failed[type(estimator).__name__] = f"{type(error).__name__}: {error}"
            if "-x" in sys.argv:
                raise
    print(f"{len(checked_estimators())} checked, failed: {failed}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
