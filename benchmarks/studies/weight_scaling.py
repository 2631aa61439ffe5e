"""Bin-wise weights and temperatures on predictions of networks.

These are the experiments of "Network calibration by weight scaling" (anonymous, 2023), tables 2 and
3 and figures 2 and 3, on the predictions that are available.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.exceptions import ConvergenceWarning

import bayescal as bc
from bayescal import metrics
from bayescal._core.numerics import softmax
from bayescal.data.checks import check_count
from benchmarks.studies import _published_weights as published
from benchmarks.studies._binwise_variants import closest
from benchmarks.studies._networks import Network, find_networks, read_network
from benchmarks.studies._repeats import difference, mean_and_error
from benchmarks.studies._scaling_grid import best_weight, scaled_by_weight
from benchmarks.studies.store import Progress, Results, counted

__all__ = ["BINNINGS", "KNOTS", "VARIANTS_OF", "evaluate", "run"]

#: The only available network of table 2.
VARIANTS_OF = "kull_densenet40_c10"
KNOTS = tuple(range(4, 16))
BINNINGS = "equal_width", "equal_mass"
#: Number of passes of bin-wise weight scaling; each is fitted to the result of the previous one.
PASSES = 5
_BINS, _TEST_BINS = 13, 25
_BLOCK_ROWS, _ROUNDING_ERROR = 1000, 1e-12


def run(
    data: str | Path,
    out: str | Path,
    *,
    networks: Sequence[str] | None = None,
    splits: int = 10,
    about: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Scale predictions of networks by bins of their confidence, with many variants.

    Parameters
    ----------
    data : path
        Folder of predictions, as in :func:`benchmarks.studies.cnn.run`.
    out : path
        Folder for ``weight_scaling.json`` and ``parts``; created if it is missing.
    networks : sequence of str, optional
        Names of networks, which are the stems of their files; by default all.
    splits : int
        Number of random splits of networks without validation rows. One half of the test rows is
        used for calibration, the other for testing.
    about : mapping of str to str, optional
        Versions and similar facts, written to the summary.
    progress : callable, optional
        Called with the next step, the number of finished parts and the total number.

    Returns
    -------
    dict
        The content of ``weight_scaling.json``. ``networks`` contains, by network: means over splits
        of the values of :func:`evaluate`, with standard errors, and differences; and for the first
        split these values (``first_split``), the content of the bins (``bins``) and reliability
        curves (``reliability``). ``variants``: those of the DenseNet-40 on CIFAR-10
        (:func:`benchmarks.studies._binwise_variants.closest`). ``published``: tables 2 and 3.

    Raises
    ------
    ValueError
        If a file cannot be read or a network is unknown.
    OSError
        If results cannot be written.

    Notes
    -----
    Halves of the same rows are dependent, and the standard errors allow for this
    (:func:`benchmarks.studies._repeats.mean_and_error`). A network with validation rows is measured
    once, without standard error.

    References
    ----------
    Network calibration by weight scaling, anonymous submission to ICLR 2023. K. Gupta et al.
    (2021), Calibration of neural networks using splines.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> rng = np.random.default_rng(0)
    >>> z = 3 * rng.normal(size=(400, 3))
    >>> y = (z / 3 + rng.gumbel(size=z.shape)).argmax(axis=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(pathlib.Path(folder) / "net.npz", logits_test=z, y_test=y)
    ...     result = run(folder, pathlib.Path(folder) / "out", splits=2)
    >>> means = result["networks"]["net"]["means"]
    >>> means["equal_mass 13"]["mean"] < means["uncalibrated"]["mean"]
    True
    """
    splits = check_count(splits, "splits")
    paths = find_networks(Path(data), networks)
    store = Results("weight_scaling", out, about)
    first_splits = {name: read_network(name, path) for name, path in paths.items()}
    halved = {name: network.split != "validation rows" for name, network in first_splits.items()}
    runs = [(name, s) for name in paths for s in range(splits if halved[name] else 1)]
    answers: dict[str, list[Any]] = {name: [] for name in paths}
    for name, split in counted(runs, lambda run: f"{run[0]}, split {run[1]}", progress):
        network = first_splits[name] if split == 0 else read_network(name, paths[name], split)
        answers[name].append(
            store.part(
                f"weights-{name}-{split}",
                {"network": name, "split": split, "data": network.digest},
                lambda old, network=network: old or evaluate(network),
            )
        )
    results = {}
    for name, network in first_splits.items():
        shared = len(network.test_y) / len(network.y) if halved[name] else 0.0
        results[name] = {
            "rows": {"calibration": len(network.y), "test": len(network.test_y)},
            "classes": network.scores.shape[1],
            "splits": len(answers[name]),
            **_over_splits(answers[name], shared),
            "first_split": answers[name][0],
            **store.part(
                f"bins-{name}",
                {"network": name, "data": network.digest},
                lambda old, network=network: old or _by_bins(network),
            ),
        }
    summary: dict[str, Any] = {"bins": _BINS, "test_bins": _TEST_BINS, "networks": results}
    if VARIANTS_OF in first_splits:
        network = first_splits[VARIANTS_OF]
        summary["variants"] = store.part(
            "variants",
            {"data": network.digest},
            lambda old: (
                old or closest(network.scores, network.y, network.test_scores, network.test_y)
            ),
        )
    summary["published"] = {"table_2": published.TABLE_2, "table_3": published.TABLE_3}
    return store.summary("weight_scaling", summary)


def _over_splits(answers: list[dict[str, float]], shared: float) -> dict[str, Any]:
    """Compute means over splits, and differences of methods."""
    values = {key: np.array([answer[key] for answer in answers], float) for key in answers[0]}

    pairs = {
        f"equal mass less equal width, {b} bins": (f"equal_mass {b}", f"equal_width {b}")
        for b in published.BINS
    }
    pairs |= {
        f"{b} bins of equal mass less 13": (f"equal_mass {b}", "equal_mass 13")
        for b in published.BINS
        if b != _BINS
    }
    pairs |= {
        "CWS less CTS": ("equal_mass 13", "binwise_confidence"),
        "CTS less BTS": ("binwise_confidence", "binwise_temperature"),
        "five passes less one": (f"pass {PASSES}", "pass 1"),
        "squares less absolute, test": ("squares, ece", "absolute, ece"),
        "weight by grid less absolute, test": ("grid, ece", "absolute, ece"),
    }
    return {
        "means": {key: mean_and_error(repeated, shared) for key, repeated in values.items()},
        "differences": {
            name: difference(values[first], values[second], shared)
            for name, (first, second) in pairs.items()
        },
    }


def _calibrators(network: Network) -> dict[str, bc.Calibrator]:
    options: dict[str, Any] = {
        "inputs": network.inputs,
        "classes": tuple(range(network.scores.shape[1])),
    }
    weights: dict[str, bc.Calibrator] = {
        f"{binning} {bins}": bc.WeightScaling(bins, binning, **options)
        for binning in BINNINGS
        for bins in published.BINS
    }
    return {
        **weights,
        "temperature": bc.Temperature(**options),
        "binwise_temperature": bc.BinwiseTemperature("log_loss", _BINS, **options),
        "binwise_confidence": bc.BinwiseTemperature("confidence", _BINS, **options),
    }


def _fit(model: bc.Calibrator, network: Network) -> bc.Calibrator:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(network.scores, network.y)


def _probs(network: Network) -> tuple[np.ndarray, np.ndarray]:
    scores = network.scores, network.test_scores
    if network.inputs == "logits":
        return softmax(scores[0]), softmax(scores[1])
    return scores


def evaluate(network: Network) -> dict[str, float]:
    """Compute calibration errors of the confidence in 25 bins of equal width, and other numbers.

    Parameters
    ----------
    network : Network
        From :func:`benchmarks.studies._networks.read_network`.

    Returns
    -------
    dict of float
        Calibration errors: "uncalibrated"; "temperature"; "binwise_temperature" and
        "binwise_confidence" with 13 bins; bin-wise weights, such as "equal_width 5" with 5 bins;
        splines of the confidence, such as "spline 6" with 6 knots; and repeated passes of weights
        with 13 bins, "pass 1" to "pass 5".

        "exchanged by temperature" and "exchanged by weights" are the shares of pairs of rows whose
        order of confidences is reversed. "classes changed" is the share of rows whose predicted
        class changes with weights.

        "absolute", "squares" and "grid" are one weight for all rows by three criteria. The suffixes
        are ", weight", the weight; ", L1" and ", L2", which the first two minimize, on the
        calibration rows; and ", ece", in 15 bins on the test rows.
    """
    (probs, test), y, test_y = _probs(network), network.y, network.test_y

    def error(predicted: np.ndarray) -> float:
        return metrics.ece(predicted, test_y, bins=_TEST_BINS)

    predicted = {
        name: np.asarray(_fit(model, network).predict_proba(network.test_scores))
        for name, model in _calibrators(network).items()
    }
    values = {"uncalibrated": error(test), **{name: error(p) for name, p in predicted.items()}}
    correct = (probs.argmax(axis=1) == y).astype(int)
    test_correct = (test.argmax(axis=1) == test_y).astype(int)
    for knots in KNOTS:
        spline = bc.CDFSpline(knots).fit(probs.max(axis=1), correct)
        calibrated = spline.predict_proba(test.max(axis=1))[:, 1]
        values[f"spline {knots}"] = metrics.ece(calibrated, test_correct, bins=_TEST_BINS)
    values |= _passes(probs, y, test, test_y)
    confidence = test.max(axis=1)
    for name, calibrator in (("temperature", "temperature"), ("weights", "equal_mass 13")):
        values[f"exchanged by {name}"] = exchanged(confidence, predicted[calibrator].max(axis=1))
    values["classes changed"] = float(
        np.mean(predicted["equal_mass 13"].argmax(1) != test.argmax(1))
    )
    return values | _one_weight(probs, y, test, test_y)


def exchanged(before: np.ndarray, after: np.ndarray) -> float:
    """Compute the share of pairs of rows whose order differs between two arrays (n,).

    Examples
    --------
    >>> exchanged(np.array([0.5, 0.6, 0.7]), np.array([0.5, 0.9, 0.8])) * 3
    1.0
    """
    count, n = 0, len(before)
    for first in range(0, n, _BLOCK_ROWS):
        before_block, after_block = (
            before[first : first + _BLOCK_ROWS, None],
            after[first : first + _BLOCK_ROWS, None],
        )
        # Rounding creates and breaks ties.
        count += int(
            (
                (before_block < before - _ROUNDING_ERROR) & (after_block > after + _ROUNDING_ERROR)
            ).sum()
        )
    return count / (n * (n - 1) / 2)


def _passes(
    probs: np.ndarray, y: np.ndarray, test: np.ndarray, test_y: np.ndarray
) -> dict[str, float]:
    """Compute the error after each of several passes of weights."""
    errors = {}
    for step in range(1, PASSES + 1):
        model = bc.WeightScaling(_BINS, classes=tuple(range(probs.shape[1]))).fit(probs, y)
        probs, test = model.predict_proba(probs), model.predict_proba(test)
        errors[f"pass {step}"] = metrics.ece(test, test_y, bins=_TEST_BINS)
    return errors


def _one_weight(
    probs: np.ndarray, y: np.ndarray, test: np.ndarray, test_y: np.ndarray
) -> dict[str, float]:
    """Fit one weight by three criteria, and measure its errors."""
    classes = tuple(range(probs.shape[1]))
    models = {
        "absolute": bc.WeightScaling(norm=1, classes=classes),
        "squares": bc.WeightScaling(norm=2, classes=classes),
    }
    weights = {name: float(model.fit(probs, y).alpha_[0]) for name, model in models.items()}
    weights["grid"] = best_weight(probs, y)
    values = {}
    for name, alpha in weights.items():
        scaled = scaled_by_weight(probs, alpha)
        values[f"{name}, weight"] = alpha
        for norm in (1, 2):
            error = metrics.ece(scaled, y, binning="equal_mass", norm=norm)
            values[f"{name}, L{norm}"] = error**norm
        values[f"{name}, ece"] = metrics.ece(scaled_by_weight(test, alpha), test_y)
    return values


def _by_bins(network: Network) -> dict[str, Any]:
    """Compute figure 2 from the calibration rows, and figure 3 from the test rows."""
    calibrators = _calibrators(network)
    weights: Any = _fit(calibrators[f"equal_mass {_BINS}"], network)
    temperatures: Any = _fit(calibrators["binwise_confidence"], network)
    bins = {
        "accuracy": weights.accuracy_,
        "confidence": weights.confidence_,
        "weight": weights.alpha_,
        "inverse_temperature": 1 / temperatures.temperature_,
    }
    order = np.arange(len(weights.alpha_))
    keys = "weight", "inverse_temperature"
    correlate: Any = spearmanr
    rising = {key: float(correlate(order, bins[key]).statistic) for key in keys}
    predicted = {
        "uncalibrated": _probs(network)[1],
        "CTS": temperatures.predict_proba(network.test_scores),
        "CWS": weights.predict_proba(network.test_scores),
    }
    curves = {
        name: metrics.reliability_curve(values, network.test_y, bins=_BINS)._asdict()
        for name, values in predicted.items()
    }
    return {
        "bins": {key: np.asarray(values).tolist() for key, values in bins.items()},
        "rank_correlation": rising,
        "reliability": {
            name: {key: np.asarray(values).tolist() for key, values in curve.items()}
            for name, curve in curves.items()
        },
    }
