"""Calibration maps of several classes where the true probabilities are known.

Predictions of three classes are drawn from Dirichlet(1/2, 1/2, 1/2), and labels by a smooth true
map (``bayescal.datasets.simplex``), so the distance of each calibrated prediction from the truth is
known, and so are the scores that nothing can beat.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bayescal.datasets.simplex import SimplexData, sample
from benchmarks.studies._calibrators import Method, find_methods, run_method, statuses
from benchmarks.studies._measures import EPS, measure_known
from benchmarks.studies._published import SYNTHETIC
from benchmarks.studies._store import keep, recall, write_csv, write_json

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
_SECONDS = ("fit_seconds", "predict_seconds")
_TEST_SEED = 1_000_000


def run(
    out: str | Path,
    *,
    maps: Sequence[str] | None = None,
    datasets: int = 1,
    calibration_rows: int = 5000,
    test_rows: int = 100_000,
    about: Mapping[str, str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
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
        As in ``benchmarks.studies.cnn.run``; by default all. The true probabilities are always
        there.
    datasets : int
        Number of calibration sets, drawn with seeds 0, 1, ...; the test set is the same. The seed
        is that of a map's random numbers too.
    calibration_rows, test_rows : int
        Sizes of the calibration sets and of the test set.
    about : mapping of str to str, optional
        Versions and the like that results depend on; written to the summary.
    progress : callable, optional
        Called with the name of a map, the number of parts done and that of all parts, before
        each part and at the end.

    Returns
    -------
    dict
        The content of ``simplex.json``. By map, "truth" the last: means over data sets, their
        ``spread`` (least and greatest) if there are several, ``status`` of the fit and seconds.
        ``published`` are figures for another true map.

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
    methods, missing = find_methods(maps)
    test = sample(test_rows, seed=_TEST_SEED)
    draw = cache(lambda seed: sample(calibration_rows, seed=seed))
    digest = _digest(draw(0), test)
    parts = Path(out) / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    total, done, rows = len(methods) * datasets, 0, []
    found: dict[str, Any] = {}
    for method in methods:
        answers = []
        for seed in range(datasets):
            if progress:
                progress(method.name, done, total)
            answer = _part(method, draw, seed, test, parts, (digest, dict(about or {})))
            rows.append([method.name, seed, *(answer[key] for key in _columns())])
            answers.append(answer)
            done += 1
        found[method.name] = _over_sets(answers)
    if progress:
        progress("", done, total)
    floor = {**measure_known(test.truth, test.y, test.truth), "status": "converged"}
    found[TRUTH] = floor | dict.fromkeys(_SECONDS, 0.0)
    rows.append([TRUTH, 0, *(found[TRUTH][key] for key in _columns())])
    write_csv(Path(out) / "simplex.csv", ("map", "seed", *_columns()), rows)
    summary = {
        "about": dict(about or {}),
        "eps": EPS,
        "datasets": datasets,
        "rows": {"calibration": calibration_rows, "test": test_rows},
        "not_registered": missing,
        "maps": found,
        "published": SYNTHETIC,
    }
    write_json(Path(out) / "simplex.json", summary)
    return summary


def _columns() -> tuple[str, ...]:
    return (*METRICS, "status", *_SECONDS)


def _digest(*sets: SimplexData) -> str:
    """Tell data from other data."""
    found = hashlib.sha256()
    for data in sets:
        for array in data:
            found.update(f"{array.shape}".encode())
            found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _part(
    method: Method,
    draw: Callable[[int], SimplexData],
    seed: int,
    test: SimplexData,
    folder: Path,
    asked: tuple[str, dict[str, str]],
) -> dict[str, Any]:
    """Return the results of one map and data set, from their file if they are there."""
    path = folder / f"simplex-{method.name}-{seed}.json"
    question = {
        "study": "bayescal study simplex",
        "map": method.question(),
        "seed": seed,
        "data": asked[0],
        "about": asked[1],
    }
    answer = recall(path, question)
    if answer is None:
        own = draw(seed)
        outcome = run_method(method, own.probs, own.y, test.probs, "probs", seed)
        answer = {
            **measure_known(outcome.probs, test.y, test.truth),
            "status": outcome.status,
            "fit_seconds": round(outcome.fit_seconds, 4),
            "predict_seconds": round(outcome.predict_seconds, 4),
        }
        keep(path, question, answer)
    return answer


def _over_sets(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return means over data sets, and how far the metrics spread."""
    found = {k: float(np.mean([each[k] for each in answers])) for k in (*METRICS, *_SECONDS)}
    spread = {k: [min(e[k] for e in answers), max(e[k] for e in answers)] for k in METRICS}
    status = statuses(answer["status"] for answer in answers)
    return {**found, "status": status, **({"spread": spread} if len(answers) > 1 else {})}
