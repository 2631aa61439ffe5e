"""Weights and temperatures by bins of the confidence, on predictions of networks.

The experiments of "Network calibration by weight scaling" (anonymous, 2023), tables 2 and 3 and
figures 2 and 3, as far as predictions can be had.
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

#: The one network of table 2 that can be had.
VARIANTS_OF = "kull_densenet40_c10"
KNOTS = tuple(range(4, 16))
BINNINGS = "equal_width", "equal_mass"
#: Passes of weight scaling by bins, each over what the one before made.
PASSES = 5
_BINS, _TEST_BINS = 13, 25
_BLOCK, _TIE = 1000, 1e-12


def run(
    data: str | Path,
    out: str | Path,
    *,
    networks: Sequence[str] | None = None,
    splits: int = 10,
    about: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Scale predictions of networks by bins of their confidence, in many ways.

    Parameters
    ----------
    data : path
        Folder of predictions, as in :func:`benchmarks.studies.cnn.run`.
    out : path
        Folder for ``weight_scaling.json`` and ``parts``; made if it is missing.
    networks : sequence of str, optional
        Names of networks, which are those of their files; by default all.
    splits : int
        Random halves of networks that have test rows only: one calibrates, the other tests.
    about : mapping of str to str, optional
        Versions and the like, written to the summary.
    progress : callable, optional
        Called with what is done next, the number of parts done and that of all.

    Returns
    -------
    dict
        The content of ``weight_scaling.json``. By network: means over splits of what
        :func:`evaluate` returns, with standard errors, and differences; of the first split
        the same (``first_split``), what the bins hold (``bins``) and how reliable predictions are
        (``reliability``). ``variants`` of the DenseNet-40 on CIFAR-10
        (:func:`benchmarks.studies._binwise_variants.closest`); ``published``, tables 2 and 3.

    Raises
    ------
    ValueError
        If a file cannot be read or a network is unknown.
    OSError
        If results cannot be written.

    Notes
    -----
    Halves of the same rows have much in common, which the standard errors allow for
    (:func:`benchmarks.studies._repeats.mean_and_error`). A network that has rows of validation is
    measured once, without standard error.

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
    ...     found = run(folder, pathlib.Path(folder) / "out", splits=2)
    >>> means = found["networks"]["net"]["means"]
    >>> means["equal_mass 13"]["mean"] < means["uncalibrated"]["mean"]
    True
    """
    splits = check_count(splits, "splits")
    paths = find_networks(Path(data), networks)
    kept = Results("weight_scaling", out, about)
    first = {name: read_network(name, path) for name, path in paths.items()}
    halved = {name: network.split != "validation rows" for name, network in first.items()}
    runs = [(name, s) for name in paths for s in range(splits if halved[name] else 1)]
    answers: dict[str, list[Any]] = {name: [] for name in paths}
    for name, split in counted(runs, lambda run: f"{run[0]}, split {run[1]}", progress):
        network = first[name] if split == 0 else read_network(name, paths[name], split)
        answers[name].append(
            kept.part(
                f"weights-{name}-{split}",
                {"network": name, "split": split, "data": network.digest},
                lambda old, network=network: old or evaluate(network),
            )
        )
    found = {}
    for name, network in first.items():
        shared = len(network.test_y) / len(network.y) if halved[name] else 0.0
        found[name] = {
            "rows": {"calibration": len(network.y), "test": len(network.test_y)},
            "classes": network.scores.shape[1],
            "splits": len(answers[name]),
            **_over_splits(answers[name], shared),
            "first_split": answers[name][0],
            **kept.part(
                f"bins-{name}",
                {"network": name, "data": network.digest},
                lambda old, network=network: old or _by_bins(network),
            ),
        }
    summary: dict[str, Any] = {"bins": _BINS, "test_bins": _TEST_BINS, "networks": found}
    if VARIANTS_OF in first:
        own = first[VARIANTS_OF]
        summary["variants"] = kept.part(
            "variants",
            {"data": own.digest},
            lambda old: old or closest(own.scores, own.y, own.test_scores, own.test_y),
        )
    summary["published"] = {"table_2": published.TABLE_2, "table_3": published.TABLE_3}
    return kept.summary("weight_scaling", summary)


def _over_splits(answers: list[dict[str, float]], shared: float) -> dict[str, Any]:
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
        "means": {key: mean_and_error(own, shared) for key, own in values.items()},
        "differences": {
            name: difference(values[one], values[other], shared)
            for name, (one, other) in pairs.items()
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


def _fitted(model: bc.Calibrator, network: Network) -> bc.Calibrator:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(network.scores, network.y)


def _probs(network: Network) -> tuple[np.ndarray, np.ndarray]:
    both = network.scores, network.test_scores
    if network.inputs == "logits":
        return softmax(both[0]), softmax(both[1])
    return both


def evaluate(network: Network) -> dict[str, float]:
    """Return calibration errors of the confidence in 25 bins of equal width, and other numbers.

    Parameters
    ----------
    network : Network
        From :func:`benchmarks.studies._networks.read_network`.

    Returns
    -------
    dict of float
        "uncalibrated", "temperature", "binwise_temperature" and "binwise_confidence" in 13 bins;
        "equal_width 5" and the like, weights by bins; "spline 6" and the like, a spline of so many
        knots for the confidence; "pass 1" and the like, weights by 13 bins found again and again.
        "exchanged by temperature" and "exchanged by weights" are the shares of pairs of rows of
        which the less confident one becomes the more confident one. "absolute", "squares" and
        "grid", one weight for all rows by three criteria, have ", weight", ", L1" and ", L2"
        (what the first two minimize, on the calibration rows) and ", ece" (in 15 bins, test).
    """
    (probs, test), y, test_y = _probs(network), network.y, network.test_y

    def error(predicted: np.ndarray) -> float:
        return metrics.ece(predicted, test_y, bins=_TEST_BINS)

    predicted = {
        name: np.asarray(_fitted(model, network).predict_proba(network.test_scores))
        for name, model in _calibrators(network).items()
    }
    found = {"uncalibrated": error(test), **{name: error(p) for name, p in predicted.items()}}
    right = (probs.argmax(axis=1) == y).astype(int)
    test_right = (test.argmax(axis=1) == test_y).astype(int)
    for knots in KNOTS:
        spline = bc.CDFSpline(knots).fit(probs.max(axis=1), right)
        calibrated = spline.predict_proba(test.max(axis=1))[:, 1]
        found[f"spline {knots}"] = metrics.ece(calibrated, test_right, bins=_TEST_BINS)
    found |= _passes(probs, y, test, test_y)
    before = test.max(axis=1)
    for name, own in (("temperature", "temperature"), ("weights", "equal_mass 13")):
        found[f"exchanged by {name}"] = exchanged(before, predicted[own].max(axis=1))
    found["classes changed"] = float(
        np.mean(predicted["equal_mass 13"].argmax(1) != test.argmax(1))
    )
    return found | _one_weight(probs, y, test, test_y)


def exchanged(before: np.ndarray, after: np.ndarray) -> float:
    """Return the share of pairs of rows whose order two arrays (n,) disagree on.

    Examples
    --------
    >>> exchanged(np.array([0.5, 0.6, 0.7]), np.array([0.5, 0.9, 0.8])) * 3
    1.0
    """
    count, n = 0, len(before)
    for first in range(0, n, _BLOCK):
        one, two = before[first : first + _BLOCK, None], after[first : first + _BLOCK, None]
        # Rounding makes and breaks ties.
        count += int(((one < before - _TIE) & (two > after + _TIE)).sum())
    return count / (n * (n - 1) / 2)


def _passes(
    probs: np.ndarray, y: np.ndarray, test: np.ndarray, test_y: np.ndarray
) -> dict[str, float]:
    found = {}
    for step in range(1, PASSES + 1):
        model = bc.WeightScaling(_BINS, classes=tuple(range(probs.shape[1]))).fit(probs, y)
        probs, test = model.predict_proba(probs), model.predict_proba(test)
        found[f"pass {step}"] = metrics.ece(test, test_y, bins=_TEST_BINS)
    return found


def _one_weight(
    probs: np.ndarray, y: np.ndarray, test: np.ndarray, test_y: np.ndarray
) -> dict[str, float]:
    classes = tuple(range(probs.shape[1]))
    models = {
        "absolute": bc.WeightScaling(norm=1, classes=classes),
        "squares": bc.WeightScaling(norm=2, classes=classes),
    }
    weights = {name: float(model.fit(probs, y).alpha_[0]) for name, model in models.items()}
    weights["grid"] = best_weight(probs, y)
    found = {}
    for name, alpha in weights.items():
        own = scaled_by_weight(probs, alpha)
        found[f"{name}, weight"] = alpha
        for norm in (1, 2):
            left = metrics.ece(own, y, binning="equal_mass", norm=norm)
            found[f"{name}, L{norm}"] = left**norm
        found[f"{name}, ece"] = metrics.ece(scaled_by_weight(test, alpha), test_y)
    return found


def _by_bins(network: Network) -> dict[str, Any]:
    """Return figure 2, of the calibration rows, and figure 3, of the test rows."""
    every = _calibrators(network)
    weights: Any = _fitted(every[f"equal_mass {_BINS}"], network)
    temperatures: Any = _fitted(every["binwise_confidence"], network)
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
        name: metrics.reliability_curve(own, network.test_y, bins=_BINS)._asdict()
        for name, own in predicted.items()
    }
    return {
        "bins": {key: np.asarray(own).tolist() for key, own in bins.items()},
        "rank_correlation": rising,
        "reliability": {
            name: {key: np.asarray(values).tolist() for key, values in curve.items()}
            for name, curve in curves.items()
        },
    }
