"""Calibration maps of several classes where the true probabilities are known.

Predictions of three classes are drawn from Dirichlet(1/2, 1/2, 1/2), and labels by a smooth true
map (``bayescal.datasets.simplex``), so the distance of each calibrated prediction from the truth is
known, and so are the scores that nothing can beat.
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

#: What is measured; distances are those from the true probabilities.
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
#: The row of the true probabilities.
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
    r"""Fit every map to data with a known truth, and write how far from it they end.

    Each map and data set is kept in a file of its own under ``out/parts``, as in
    ``benchmarks.studies.cnn``.

    Parameters
    ----------
    out : path
        Folder for the results, made if it is missing: ``simplex.csv`` with a row for each map and
        data set; ``simplex.json``; and ``parts``.
    maps : sequence of str, optional
        As in ``benchmarks.studies.cnn.run``, and with the published options "forest_fixed",
        "knn_fixed", "kernel_fixed" and "order_preserving_fixed"; by default all. The true
        probabilities are always there.
    datasets : int
        Number of calibration sets, drawn with seeds 0, 1, ...; the test set is the same. The seed
        is that of a map's random numbers too.
    calibration_rows, test_rows : int
        Sizes of the calibration sets and of the test set.
    wave : float
        Amplitude of the wave in the true map, by default that of ``bayescal.datasets.simplex``;
        without it the truth is nearly a Dirichlet map.
    about : mapping of str to str, optional
        Versions and the like that results depend on; written to the summary.
    progress : callable, optional
        Called with the name of a map, the number of parts done and that of all parts, before
        each part and at the end.

    Returns
    -------
    dict
        The content of ``simplex.json``. By map, "truth" the last: means over data sets, their
        ``spread`` (least and greatest) if there are several and the values of ``each`` for the
        metrics of the published table, ``status`` of the fit and seconds. ``published`` are figures
        for another true map.

    Raises
    ------
    ValueError
        If a map is unknown.
    OSError
        If results cannot be written.

    Notes
    -----
    Distances are means over the test rows: of absolute differences summed over the classes (L1), of
    Euclidean ones (L2), of the absolute difference for the most probable class, and of the mean
    over classes. Log loss (clipped at 1e-15), Brier score, accuracy and loss gap are expected
    values given the truth, without noise from labels. The binned errors are those of labels.

    References
    ----------
    K. Valk (2022), Calibration of multi-class probabilistic classifiers, University of Tartu,
    section 4.2, table 1.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = run(folder, maps=["uncalibrated", "dirichlet"], test_rows=5000)
    >>> list(found["maps"])
    ['uncalibrated', 'dirichlet', 'truth']
    >>> found["maps"]["dirichlet"]["distance_l1"] < found["maps"]["uncalibrated"]["distance_l1"]
    True
    """
    if datasets < 1:
        raise ValueError(f"datasets must be at least 1, got {datasets}")
    methods, missing = find_methods(maps, fixed=True)
    test = _sample(test_rows, _TEST_SEED, wave)
    draw = cache(lambda seed: _sample(calibration_rows, seed, wave))
    data = digest((*draw(0), *test))
    kept = Results("simplex", out, about)
    rows, answers = [], {}
    runs = [(method, seed) for method in methods for seed in range(datasets)]
    for method, seed in counted(runs, lambda run: run[0].name, progress):
        answer = kept.part(
            f"simplex-{method.name}-{seed}",
            {"map": method.question(), "seed": seed, "data": data},
            lambda old, method=method, seed=seed: old or _measure(method, draw(seed), test, seed),
        )
        rows.append([method.name, seed, *(answer[key] for key in (*METRICS, *FACTS))])
        answers.setdefault(method.name, []).append(answer)
    found = {name: over_runs(some, METRICS) for name, some in answers.items()}
    if datasets > 1:
        for name, some in answers.items():
            found[name]["each"] = {key: [one[key] for one in some] for key in SYNTHETIC[TRUTH]}
    floor = {**measure_known(test.truth, test.y, test.truth), "status": "converged"}
    found[TRUTH] = floor | dict.fromkeys(SECONDS, 0.0)
    rows.append([TRUTH, 0, *(found[TRUTH][key] for key in (*METRICS, *FACTS))])
    kept.table("simplex", ("map", "seed", *METRICS, *FACTS), rows)
    summary = {
        "eps": EPS,
        "datasets": datasets,
        "rows": {"calibration": calibration_rows, "test": test_rows},
        "wave": wave,
        "not_registered": missing,
        "maps": found,
        "published": SYNTHETIC,
    }
    return kept.summary("simplex", summary)


def _sample(n: int, seed: int, wave: float) -> SimplexData:
    """Draw predictions and labels with another amplitude of the wave in the true map."""
    data = sample(n, seed=seed)
    if wave == _WAVE:
        return data
    more = (wave - _WAVE) * np.sin(2 * np.pi * np.roll(data.probs, -1, axis=1))
    truth = data.truth * np.exp(more)
    truth /= truth.sum(axis=1, keepdims=True)
    place = np.random.default_rng([seed, 1]).random(n)[:, None] > np.cumsum(truth, axis=1)[:, :2]
    return SimplexData(data.probs, place.sum(axis=1), truth)


def _measure(method: Method, own: SimplexData, test: SimplexData, seed: int) -> dict[str, Any]:
    """Return the results of one map and data set."""
    outcome = run_method(method, own.probs, own.y, test.probs, "probs", seed)
    return {**measure_known(outcome.probs, test.y, test.truth), **outcome.facts()}
