"""Calibrate naive Bayes on the Adult census data, and compare with the published figures.

B. Lucena trains "a Naive Bayes model using the variables work-class, education-num, marital-status,
relationship, race, and sex" and prints the log loss of six kinds of probabilities on the 16,281
test rows. The paper states neither the model of naive Bayes and the encoding of the variables, nor
the number of calibration rows. This study explores both:

- Several encodings are compared by the uncalibrated log loss alone, which is 0.7448 in the paper.
  Bernoulli naive Bayes on one column for each value of each variable comes closest. Calibrators
  play no part in that choice.
- Calibrators are fitted by 5-fold cross-validation of all training rows, and on a random held-out
  quarter of the training rows, five times, as in an earlier example of the paper.
- The splines choose their strength by cross-validation. They are also fitted with a strength of
  0.002, inferred from the published figures: no other explains the figures of both splines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.preprocessing import OrdinalEncoder

from bayescal import (
    Beta,
    CalibratedClassifier,
    CenteredIsotonic,
    Isotonic,
    Logistic,
    Spline,
    VennAbers,
    metrics,
)
from benchmarks.studies._adult_claims import judge
from benchmarks.studies._binary_tables import read_rows, split_rows
from benchmarks.studies._naive_bayes import ENCODINGS, MODEL, NUMBER, VARIABLES
from benchmarks.studies.paired import row_losses
from benchmarks.studies.store import Progress, Results, counted

__all__ = ["CALIBRATORS", "ENCODINGS", "MODEL", "VARIABLES", "load", "run"]

# Columns of the variables in the files, which have no header; the label is the last column.
_COLUMNS = (1, 4, 5, 7, 8, 9)
_SUBFOLDER = Path("tabular", "more")
_HELD_OUT, _SPLITS = 0.25, 5


def _spline(**options: Any) -> Callable[[], Any]:
    return lambda: Spline(**options)


#: Calibrators, and the log losses published for them.
CALIBRATORS: dict[str, tuple[Callable[[], Any], float | None]] = {
    "Platt, of probabilities": (lambda: Logistic(inputs="scores"), 0.4287),
    "logistic, of log odds": (Logistic, None),
    "beta": (Beta, None),
    "isotonic": (Isotonic, 0.3976),
    "centered isotonic": (CenteredIsotonic, None),
    "Venn-Abers": (VennAbers, None),
}
# Four variants of both splines: each penalty with the default rule, the strength that explains the
# published figures, and the strength chosen by the published rule.
for _name, _rescale, _loss in (
    ("spline", None, 0.4032),
    ("compact spline", "compact_logit", 0.3934),
):
    CALIBRATORS |= {
        f"{_name}, coefficients": (_spline(rescale=_rescale, penalty="coefficients"), _loss),
        f"{_name}, curvature": (_spline(rescale=_rescale, penalty="curvature"), _loss),
        f"{_name}, strength .002": (
            _spline(rescale=_rescale, penalty="coefficients", strength=0.002),
            _loss,
        ),
        f"{_name}, as published": (
            _spline(rescale=_rescale, rule="best", penalty="coefficients"),
            _loss,
        ),
    }
CALIBRATORS["logit spline, unity prior"] = (
    _spline(
        rescale="logit", knots=30, penalty="coefficients", rule="best", unity_prior_weight=20.0
    ),
    None,
)
_UNCALIBRATED = 0.7448


def load(data: str | Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Read both parts of the Adult data.

    Parameters
    ----------
    data : path
        Folder with ``adult_train`` and ``adult_test``, each .csv or .csv.gz without a header, or a
        folder that contains such a folder as ``tabular/more``.

    Returns
    -------
    x, y, test_x, test_y : arrays of shape (n, 6), (n,), (m, 6) and (m,)
        Codes of the values in sorted order (numeric order for ``education-num``), counted from 0;
        "?" is treated as a value. Labels are 1 if the income is above 50K, otherwise 0.

    Raises
    ------
    ValueError
        If a file is missing, cannot be read, or has different content.

    Examples
    --------
    >>> load("nowhere")
    Traceback (most recent call last):
    ...
    ValueError: nowhere must hold adult_train.csv or .csv.gz, as must tabular/more in it
    """
    cells, labels = zip(*(_read(Path(data), part) for part in ("train", "test")), strict=True)
    order = [np.unique(cells[0][:, j]) for j in range(len(VARIABLES))]
    order[NUMBER] = np.array(sorted(order[NUMBER], key=float))
    options: Any = {"categories": order, "dtype": int}
    coder = OrdinalEncoder(**options)
    try:
        codes = [coder.fit(cells[0]).transform(part) for part in cells]
    except ValueError as error:
        raise ValueError(f"{data}: the test rows have a value that no other has: {error}") from None
    return codes[0], labels[0], codes[1], labels[1]


def _read(data: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Read the cells (n, 6) of the variables, and labels (n,)."""
    names = [f"adult_{part}{suffix}" for suffix in (".csv", ".csv.gz")]
    candidates = [folder / name for folder in (data, data / _SUBFOLDER) for name in names]
    path = next((candidate for candidate in candidates if candidate.is_file()), None)
    if path is None:
        raise ValueError(f"{data} must hold {names[0]} or .csv.gz, as must {_SUBFOLDER} in it")
    rows = read_rows(path)
    income = [row[-1].rstrip(".") for row in rows]
    if not rows or {len(row) for row in rows} != {15} or set(income) != {"<=50K", ">50K"}:
        raise ValueError(f"{path} must have 15 columns, the last of them <=50K or >50K")
    try:
        {float(row[_COLUMNS[NUMBER]]) for row in rows}
    except ValueError as error:
        raise ValueError(f"{path}: education-num must be a number: {error}") from None
    cells = np.array([[row[j] for j in _COLUMNS] for row in rows])
    return cells, np.array([label == ">50K" for label in income]).astype(int)


def run(
    data: str | Path,
    out: str | Path | None = None,
    *,
    about: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Compare the encodings, fit the calibrators, and compare with the published log losses.

    Parameters
    ----------
    data : path
        Folder as for :func:`load`.
    out : path, optional
        Folder for ``adult.json``, created if it is missing.
    about : mapping of str to str, optional
        Versions and similar facts, written with the results.
    progress : callable, optional
        Called with the name of a step, the number of finished steps and the total number of steps,
        before each step and at the end.

    Returns
    -------
    dict
        ``encodings``: uncalibrated log losses. ``methods``, by name: log losses on the test rows
        after calibration by cross-validation (``cross_validated``) and on held-out rows
        (``held_out``, a list), the ``published`` log loss, and the numbers of test rows whose label
        had probability zero (``impossible``, ``impossible_held_out``). ``claims`` and
        ``cross_validation``: differences of methods, their standard errors over test rows, and
        verdicts. ``remarks``: sentences on differences from published figures.

    Raises
    ------
    ValueError
        If :func:`load` raises it.
    OSError
        If results cannot be written.

    Notes
    -----
    Log losses are those of :func:`bayescal.metrics.log_loss`: probabilities of 0 and 1 are clipped
    at 2.2e-16. So each test row whose label has probability zero costs 36.04, or 0.0022 of the mean
    over 16,281 rows.

    References
    ----------
    B. Lucena (2018), Spline-based probability calibration, section 5.2 and table 1.

    Examples
    --------
    >>> run("data")["methods"]["isotonic"]["cross_validated"]  # doctest: +SKIP
    0.3934
    """
    x, y, test_x, test_y = load(data)
    store = None if out is None else Results("adult", out, about)
    steps = counted((*ENCODINGS, *CALIBRATORS), str, progress)
    encodings = {}
    for name, make in ENCODINGS.items():
        next(steps)
        encodings[name] = metrics.log_loss(_proba(make().fit(x, y), test_x), test_y)
    closest = min(encodings, key=lambda name: abs(encodings[name] - _UNCALIBRATED))
    make_model = ENCODINGS[MODEL]
    parts = [
        split_rows(y, np.arange(len(y)), _HELD_OUT, np.random.default_rng(seed))
        for seed in range(_SPLITS)
    ]
    frozen = [FrozenEstimator(make_model().fit(x[fit], y[fit])) for fit, _ in parts]
    uncalibrated = _proba(make_model().fit(x, y), test_x)
    uncalibrated_held_out = [_proba(model, test_x) for model in frozen]
    methods = {"uncalibrated": _facts(uncalibrated, uncalibrated_held_out, test_y, _UNCALIBRATED)}
    losses = {"uncalibrated": _losses(uncalibrated, uncalibrated_held_out, test_y)}
    for name, (make, published) in CALIBRATORS.items():
        next(steps)
        cross_validated = CalibratedClassifier(make_model(), make(), cv=5).fit(x, y)
        held_out = [
            CalibratedClassifier(model, make()).fit(x[rows], y[rows])
            for model, (_, rows) in zip(frozen, parts, strict=True)
        ]
        probs = _proba(cross_validated, test_x), [_proba(model, test_x) for model in held_out]
        methods[name] = _facts(*probs, test_y, published)
        losses[name] = _losses(*probs, test_y)
    next(steps, None)
    result = {
        "about": dict(about or {}),
        "rows": {"train": len(y), "test": len(test_y)},
        "held_out_share": _HELD_OUT,
        "encodings": encodings,
        "closest_encoding": closest,
        "methods": methods,
        **judge(
            {name: crossed for name, (crossed, _) in losses.items()},
            {name: held for name, (_, held) in losses.items()},
            {name: facts["published"] for name, facts in methods.items()},
        ),
    }
    result["remarks"] = _remarks(result)
    return result if store is None else store.summary("adult", result)


def _proba(model: Any, x: np.ndarray) -> np.ndarray:
    return model.predict_proba(x)[:, 1]


def _facts(
    cross_validated: np.ndarray, held_out: list[np.ndarray], y: np.ndarray, published: float | None
) -> dict[str, Any]:
    """Compute log losses, and count the test rows whose label has probability zero."""
    return {
        "cross_validated": metrics.log_loss(cross_validated, y),
        "held_out": [metrics.log_loss(probs, y) for probs in held_out],
        "published": published,
        "impossible": int(np.sum(cross_validated == 1 - y)),
        "impossible_held_out": [int(np.sum(probs == 1 - y)) for probs in held_out],
    }


def _losses(
    cross_validated: np.ndarray, held_out: list[np.ndarray], y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the losses (m,) and (splits, m) of test rows, clipped as in the mean losses."""
    eps = float(np.finfo(float).eps)
    losses = [
        row_losses(np.stack([1 - p, p], axis=1), y, eps) for p in (cross_validated, *held_out)
    ]
    return losses[0], np.stack(losses[1:])


def _remarks(result: dict[str, Any]) -> list[str]:
    """Explain in sentences why our figures differ from the published ones."""
    methods, rows = result["methods"], result["rows"]["test"]
    uncalibrated, isotonic = methods["uncalibrated"]["held_out"], methods["isotonic"]
    cost = -np.log(np.finfo(float).eps)
    counts, count_5_folds = isotonic["impossible_held_out"], isotonic["impossible"]
    loss_without = isotonic["cross_validated"] - count_5_folds * cost / rows
    implied_count = (isotonic["published"] - loss_without) * rows / cost
    log_odds = methods["logistic, of log odds"]["cross_validated"]
    return [
        f"Uncalibrated: which naive Bayes it was is not published; of {len(result['encodings'])} "
        f"tried, {result['closest_encoding']!r} comes closest. Trained on {1 - _HELD_OUT:.0%} of "
        f"the rows it gives {min(uncalibrated):.4f} to {max(uncalibrated):.4f}.",
        "Platt: of probabilities, as if they were scores of any scale. That this figure agrees too "
        f"supports the model. In the log odds the same curve reaches {log_odds:.4f}.",
        f"Isotonic: a row said to be impossible costs {cost:.2f} / {rows:,} = {cost / rows:.4f}. "
        f"Held out there are {min(counts)} to {max(counts)} of them, by 5 folds {count_5_folds}. "
        f"Without, 5 folds would give {loss_without:.4f}; the published loss is that and "
        f"{implied_count:.1f} such rows.",
        "Splines: both published figures are those of one fixed strength, .002 (C = 500 in "
        "scikit-learn). Chosen by cross-validation it is weaker by far, and the losses are lower.",
    ]
