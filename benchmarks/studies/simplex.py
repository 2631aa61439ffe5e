"""Multi-class calibration maps on data with known true probabilities.

Predictions of three classes are drawn from Dirichlet(1/2, 1/2, 1/2), and labels from a smooth true
map (``bayescal.datasets.simplex``). So the distance of each calibrated prediction from the truth is
known, and so are the best possible scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bayescal.datasets.simplex import SimplexData, sample
from benchmarks.studies._calibrators import (
    FACTS,
    SECONDS,
    Method,
    find_methods,
    over_runs,
    run_method,
)
from benchmarks.studies._measures import EPS, measure_known
from benchmarks.studies._published import SYNTHETIC
from benchmarks.studies.data import digest
from benchmarks.studies.store import Progress, Results, counted

__all__ = ["METRICS", "TRUTH", "run"]

#: Metrics; distances are from the true probabilities.
METRICS = (
    "distance_l1",
    "distance_l2",
    "confidence_error",
    "class_wise_error",
    "log_loss",
    "brier_score",
    "accuracy",
    "ece",
    "ece_mass",
    "loss_gap",
)
#: Name of the row of the true probabilities.
TRUTH = "truth"
_TEST_SEED = 1_000_000
#: The amplitude of the wave in the true map of ``bayescal.datasets.simplex``.
_WAVE = 0.15


def run(
    out: str | Path,
    *,
    maps: Sequence[str] | None = None,
    datasets: int = 1,
    calibration_rows: int = 5000,
    test_rows: int = 100_000,
    wave: float = _WAVE,
    about: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    r"""Fit every map to data with a known truth, and measure and write distances from the truth.

    The results of each map and data set are written to a separate file under ``out/parts``, as in
    ``benchmarks.studies.cnn``.

    Parameters
    ----------
    out : path
        Folder for the results, created if it is missing: ``simplex.csv`` with a row for each map
        and data set; ``simplex.json``; and ``parts``.
    maps : sequence of str, optional
        Names as in ``benchmarks.studies.cnn.run``, and the published options "forest_fixed",
        "knn_fixed", "kernel_fixed" and "order_preserving_fixed"; by default all. The true
        probabilities are always included.
    datasets : int
        Number of calibration sets, drawn with seeds 0, 1, ...; all use the same test set. Random
        maps use the seed of the data set.
    calibration_rows, test_rows : int
        Sizes of the calibration sets and of the test set.
    wave : float
        Amplitude of the wave in the true map, by default that of ``bayescal.datasets.simplex``.
        Without the wave the truth is nearly a Dirichlet map.
    about : mapping of str to str, optional
        Versions and similar facts that results depend on; written to the summary.
    progress : callable, optional
        Called with the name of a map, the number of finished parts and the total number of parts,
        before each part and at the end.

    Returns
    -------
    dict
        The content of ``simplex.json``. ``maps`` contains, by map, with "truth" as the last: means
        over data sets, ``status`` of the fit and seconds; with several data sets also the
        ``spread`` (smallest and largest value) of the metrics and, for the metrics of the published
        table, the values of ``each`` data set. ``published`` are figures for a different true map.

    Raises
    ------
    ValueError
        If a map is unknown.
    OSError
        If results cannot be written.

    Notes
    -----
    Distances are means over the test rows: of absolute differences summed over the classes (L1), of
    Euclidean distances (L2), of the absolute difference for the most probable class, and of
    absolute differences averaged over classes. Log loss (clipped at 1e-15), Brier score, accuracy
    and loss gap are expected values given the truth, without noise from labels. The binned errors
    use labels.

    References
    ----------
    K. Valk (2022), Calibration of multi-class probabilistic classifiers, University of Tartu,
    section 4.2, table 1.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     maps = run(folder, maps=["uncalibrated", "dirichlet"], test_rows=5000)["maps"]
    >>> list(maps)
    ['uncalibrated', 'dirichlet', 'truth']
    >>> maps["dirichlet"]["distance_l1"] < maps["uncalibrated"]["distance_l1"]
    True
    """
    if datasets < 1:
        raise ValueError(f"datasets must be at least 1, got {datasets}")
    methods, missing = find_methods(maps, fixed=True)
    test = _sample(test_rows, _TEST_SEED, wave)
    draw = cache(lambda seed: _sample(calibration_rows, seed, wave))
    data = digest((*draw(0), *test))
    store = Results("simplex", out, about)
    rows, answers = [], {}
    runs = [(method, seed) for method in methods for seed in range(datasets)]
    for method, seed in counted(runs, lambda run: run[0].name, progress):
        answer = store.part(
            f"simplex-{method.name}-{seed}",
            {"map": method.question(), "seed": seed, "data": data},
            lambda old, method=method, seed=seed: old or _measure(method, draw(seed), test, seed),
        )
        rows.append([method.name, seed, *(answer[key] for key in (*METRICS, *FACTS))])
        answers.setdefault(method.name, []).append(answer)
    results = {name: over_runs(of_map, METRICS) for name, of_map in answers.items()}
    if datasets > 1:
        for name, of_map in answers.items():
            results[name]["each"] = {
                key: [entry[key] for entry in of_map] for key in SYNTHETIC[TRUTH]
            }
    floor = {**measure_known(test.truth, test.y, test.truth), "status": "converged"}
    results[TRUTH] = floor | dict.fromkeys(SECONDS, 0.0)
    rows.append([TRUTH, 0, *(results[TRUTH][key] for key in (*METRICS, *FACTS))])
    store.table("simplex", ("map", "seed", *METRICS, *FACTS), rows)
    summary = {
        "eps": EPS,
        "datasets": datasets,
        "rows": {"calibration": calibration_rows, "test": test_rows},
        "wave": wave,
        "not_registered": missing,
        "maps": results,
        "published": SYNTHETIC,
    }
    return store.summary("simplex", summary)


def _sample(n: int, seed: int, wave: float) -> SimplexData:
    """Draw predictions and labels with a given amplitude of the wave in the true map."""
    data = sample(n, seed=seed)
    if wave == _WAVE:
        return data
    difference = (wave - _WAVE) * np.sin(2 * np.pi * np.roll(data.probs, -1, axis=1))
    truth = data.truth * np.exp(difference)
    truth /= truth.sum(axis=1, keepdims=True)
    above = np.random.default_rng([seed, 1]).random(n)[:, None] > np.cumsum(truth, axis=1)[:, :2]
    return SimplexData(data.probs, above.sum(axis=1), truth)


def _measure(
    method: Method, calibration: SimplexData, test: SimplexData, seed: int
) -> dict[str, Any]:
    """Compute the results of one map on one data set."""
    outcome = run_method(method, calibration.probs, calibration.y, test.probs, "probs", seed)
    return {**measure_known(outcome.probs, test.y, test.truth), **outcome.facts()}
