"""Compare calibrators with each other and with published results on many experiments.

An experiment is the scores of one classifier on calibration rows and on test rows. Methods are
compared by win rates and paired differences, overall and by number of calibration rows.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from bayescal._core.warnings import ignored
from bayescal.compare import average_ranks
from benchmarks.studies._measures import MEASURES
from benchmarks.studies.data import array_names, check_folder, read_arrays
from benchmarks.studies.store import Progress, Results, counted

__all__ = [
    "METHODS",
    "Experiment",
    "compare",
    "evaluate",
    "find_experiments",
    "read_experiment",
    "read_peers",
    "run",
]

MEASURED = "log_loss", "brier_score", "ece"
#: Differences of losses up to this are ties.
_ROUNDING = 1e-12
#: Columns of ``peers.csv`` that contain the measures.
_PEER_COLUMNS = {"log_loss": "log_loss", "brier_score": "brier", "ece": "ece15"}
#: Ranges of the number of calibration rows, upper ends excluded.
SIZES = {"below 100": (0, 100), "100 to 999": (100, 1000), "from 1,000": (1000, 1 << 60)}
_PROBABILITY_ARRAYS = {"pc", "yc", "pt", "yt"}
#: Number of calibration rows, number of classes and folder, by experiment.
_Kinds = dict[str, tuple[int, int, str]]
_NETWORK_ARRAYS = {"logits_test", "y_test"}, {"probs_test", "y_test"}


class Experiment(NamedTuple):
    """Scores (one column per class) and labels of calibration rows and test rows.

    Attributes
    ----------
    name, group : str
        Results of one group, such as models of one table, are averaged before standard errors are
        computed.
    inputs : {"probs", "logits"}
    scores, test_scores : arrays of shape (n, k), (m, k)
    y, test_y : arrays of shape (n,), (m,)
    """

    name: str
    group: str
    inputs: Literal["probs", "logits"]
    scores: np.ndarray
    y: np.ndarray
    test_scores: np.ndarray
    test_y: np.ndarray


def _make(name: str, experiment: Experiment) -> Any:
    """Build a calibrator by name; None if it does not support the number of classes."""
    import bayescal as bc

    k = experiment.scores.shape[1]
    multi_class = {
        "stacked_single": bc.StackedScaling("single"),
        "structured_vector": bc.StructuredVector(),
        "structured_matrix": bc.StructuredMatrix(),
        "temperature": bc.Temperature(),
        "ensemble_temperature": bc.EnsembleTemperature(),
    }
    binary = {"beta": bc.Beta(), "isotonic": bc.Isotonic(), "venn_abers": bc.VennAbers()}
    if name in binary and k > 2:
        return None
    calibrator: Any = {"auto": bc.Auto(), **multi_class, **binary}[name]
    return calibrator.set_params(inputs=experiment.inputs, classes=tuple(range(k)))


METHODS = (
    "auto",
    "stacked_single",
    "structured_vector",
    "structured_matrix",
    "temperature",
    "ensemble_temperature",
    "beta",
    "isotonic",
    "venn_abers",
)


def find_experiments(folders: Sequence[str | Path]) -> dict[str, Path]:
    """Find the files of experiments, by name.

    Parameters
    ----------
    folders : sequence of paths
        Folders of .npz files. A file contains either probabilities ``pc`` (n, k) and ``pt`` (m, k)
        with labels ``yc`` and ``yt``; or ``logits_test`` or ``probs_test`` (m, k) and ``y_test``,
        optionally with arrays named ``val`` instead of ``test``. Experiments of the second kind are
        named ``cnn-NAME``. Other files are ignored.

    Raises
    ------
    ValueError
        If a folder does not exist, or no experiment is found.
    """
    experiments = {}
    for folder in folders:
        for path in sorted(check_folder(folder).glob("*.npz")):
            names = array_names(path) or set()
            if names >= _PROBABILITY_ARRAYS:
                experiments[path.stem] = path
            elif any(names >= required for required in _NETWORK_ARRAYS):
                experiments[f"cnn-{path.stem}"] = path
    if not experiments:
        raise ValueError(
            f"{', '.join(map(str, folders))} must hold .npz files with pc, yc, pt and yt, or with "
            "logits_test or probs_test and y_test"
        )
    return experiments


def read_experiment(name: str, path: Path) -> Experiment:
    """Read an experiment.

    If there are no validation rows, a random half of the test rows is used for calibration.
    """
    arrays = read_arrays(path)
    if _PROBABILITY_ARRAYS <= set(arrays):
        group = name.rpartition("-")[0] if name.startswith("tab-") else name
        scores, test = (_two_columns(arrays[key].astype(float)) for key in ("pc", "pt"))
        y, test_y = (arrays[key].astype(int) for key in ("yc", "yt"))
        return Experiment(name, group, "probs", scores, y, test, test_y)
    inputs = "logits" if "logits_test" in arrays else "probs"
    test, test_y = arrays[f"{inputs}_test"], arrays["y_test"].astype(int)
    if f"{inputs}_val" in arrays:
        scores, y = arrays[f"{inputs}_val"], arrays["y_val"].astype(int)
    else:
        order = np.random.default_rng(0).permutation(len(test))
        half, other_half = np.split(order, [len(test) // 2])
        scores, y, test, test_y = test[half], test_y[half], test[other_half], test_y[other_half]
    return Experiment(name, name, inputs, scores, y, test, test_y)


def _two_columns(probs: np.ndarray) -> np.ndarray:
    """Normalize two columns to sum to one in double precision; leave more columns unchanged."""
    if probs.shape[1] > 2:
        return probs
    return probs / probs.sum(axis=1, keepdims=True)


def evaluate(experiment: Experiment, method: str) -> dict[str, float] | None:
    """Fit a method, and measure its losses on the test rows and its time in seconds.

    Return None if the method does not support the number of classes.
    """
    start = time.perf_counter()
    if method == "uncalibrated":
        from bayescal._core.numerics import softmax

        probs = experiment.test_scores
        probs = softmax(probs) if experiment.inputs == "logits" else probs
    else:
        model = _make(method, experiment)
        if model is None:
            return None
        from sklearn.exceptions import ConvergenceWarning

        with ignored(ConvergenceWarning):  # some experiments are separable
            model.fit(experiment.scores, experiment.y)
        probs = model.predict_proba(experiment.test_scores)
    seconds = time.perf_counter() - start
    losses = {name: float(MEASURES[name](probs, experiment.test_y)) for name in MEASURED}
    return {**losses, "seconds": seconds}


def compare(
    ours: Mapping[str, float], theirs: Mapping[str, float], groups: Mapping[str, str]
) -> dict[str, float]:
    """Compute the win rate of ``ours`` and the mean difference of losses, with standard errors.

    Parameters
    ----------
    ours, theirs : dict of float
        Losses by experiment. Only experiments in both are compared. The lower loss wins, and a tie
        (equal up to rounding) counts as half a win.
    groups : dict of str
        Group of each experiment. Differences are averaged within groups first, and standard errors
        are those of means over groups.

    Returns
    -------
    dict
        ``experiments``, ``groups``, ``win_rate``, ``difference`` and their standard errors
        ``win_error`` and ``error``; and ``loss_rate``, without ties.

    Examples
    --------
    >>> ours, theirs = {"a": 0.1, "b": 0.2, "c": 0.3}, {"a": 0.2, "b": 0.2, "c": 0.2}
    >>> result = compare(ours, theirs, {"a": "x", "b": "x", "c": "y"})
    >>> round(result["win_rate"], 3), round(result["difference"], 3)
    (0.5, 0.025)
    """
    both = [name for name in ours if name in theirs]
    differences = np.array([ours[name] - theirs[name] for name in both])
    losses = differences > _ROUNDING
    wins = np.where(differences < -_ROUNDING, 1.0, np.where(losses, 0.0, 0.5))
    names, index = np.unique([groups[name] for name in both], return_inverse=True)
    means = [np.bincount(index, values) / np.bincount(index) for values in (differences, wins)]
    several = len(names) > 1
    errors = [
        values.std(ddof=1) / np.sqrt(len(values)) if several else float("nan") for values in means
    ]
    return {
        "experiments": len(both),
        "groups": len(names),
        "win_rate": float(wins.mean()) if both else float("nan"),
        "loss_rate": float(losses.mean()) if both else float("nan"),
        "difference": float(means[0].mean()) if both else float("nan"),
        "error": float(errors[0]),
        "win_error": float(errors[1]),
    }


def read_peers(folders: Iterable[str | Path]) -> dict[str, dict[str, dict[str, float]]]:
    """Read losses by peer and experiment from the files ``peers.csv`` of the folders, if any."""
    peers: dict[str, dict[str, dict[str, float]]] = {}
    for folder in map(Path, folders):
        path = folder / "peers.csv"
        if not path.is_file():
            continue
        with path.open(newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                losses = {name: float(row[column]) for name, column in _PEER_COLUMNS.items()}
                peers.setdefault(row["method"], {})[row["experiment"]] = losses
    return peers


def run(
    data: Sequence[str | Path],
    out: str | Path,
    *,
    methods: Sequence[str] | None = None,
    against: Mapping[str, Any] | None = None,
    about: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    r"""Run methods on all experiments, and compare the first method with all others and with peers.

    Parameters
    ----------
    data : sequence of paths
        Folders for :func:`find_experiments`. A file ``peers.csv`` in a folder contains published
        results, with columns experiment, method, log_loss, brier and ece15.
    out : path
        Folder for ``arena.csv``, with a row for each experiment and method, and ``arena.json``.
    methods : sequence of str, optional
        Names in :data:`METHODS`; by default all.
    against : dict of callables, optional
        More peers. Each takes the probabilities and labels of calibration rows and the
        probabilities of test rows, and returns calibrated probabilities of the test rows.
    about : mapping of str to str, optional
        Versions and similar facts; written to the summary.
    progress : callable, optional
        Called with an experiment, the number of finished experiments and the total number.

    Returns
    -------
    dict
        The content of ``arena.json``. ``comparisons``, by part ("binary", "several classes", both
        by size, and all of these by folder), opponent and measure, are the results of
        :func:`compare`. ``improvements``, by part, method and measure, compare each method with the
        uncalibrated scores (post-hoc improvement): the mean decrease over groups with its standard
        error, and how often the loss decreases. ``means``, by part and method, are mean losses and
        win rates, the share of pairs of another method and an experiment in which the method is
        better (a tie counts as half). They use only experiments that all methods and peers have.

    Notes
    -----
    Log losses clip probabilities at 1e-15. The Brier score is summed over classes. The expected
    calibration error is that of the most probable class in 15 bins of equal width.

    References
    ----------
    E. Berta, D. Holzmüller, F. Bach and M. I. Jordan (2026), CalArena: a large-scale post-hoc
    calibration benchmark.
    """
    names = tuple(methods or METHODS)
    for name in names:
        if name not in METHODS:
            raise ValueError(f"methods must be among {', '.join(METHODS)}, got {name!r}")
    paths = find_experiments(data)
    store = Results("arena", out, about)
    kinds: _Kinds = {}
    results: dict[str, dict[str, dict[str, float]]] = {}
    groups, rows = {}, []
    for name in counted(paths, str, progress):
        experiment = read_experiment(name, paths[name])
        n, k = experiment.scores.shape
        groups[name], kinds[name] = experiment.group, (n, k, paths[name].parent.name)
        for method in ("uncalibrated", *names):
            losses = evaluate(experiment, method)
            if losses is not None:
                results.setdefault(method, {})[name] = losses
                rows.append([name, method, k, n, *losses.values()])
        for method, fit in (against or {}).items():
            losses = _of_peer(experiment, fit)
            results.setdefault(method, {})[name] = losses
            rows.append([name, method, k, n, *losses.values()])
    peers = {f"peer {name}": losses for name, losses in read_peers(data).items()}
    header = ["experiment", "method", "classes", "rows", *MEASURED, "seconds"]
    store.table("arena", header, rows)
    all_losses = {**results, **peers}
    summary = {
        "method": names[0],
        "experiments": len(paths),
        "comparisons": _compare_all(all_losses, names[0], groups, kinds),
        "improvements": _improvements(all_losses, groups, kinds),
        "means": _means(all_losses, kinds),
    }
    return store.summary("arena", summary)


def _of_peer(experiment: Experiment, fit: Callable[..., np.ndarray]) -> dict[str, float]:
    """Calibrate by the function of a peer, and measure its losses and time in seconds."""
    from bayescal._core.numerics import softmax

    score_sets = experiment.scores, experiment.test_scores
    if experiment.inputs == "logits":
        score_sets = tuple(softmax(scores) for scores in score_sets)
    start = time.perf_counter()
    probs = fit(score_sets[0], experiment.y, score_sets[1])
    seconds = time.perf_counter() - start
    losses = {name: float(MEASURES[name](probs, experiment.test_y)) for name in MEASURED}
    return {**losses, "seconds": seconds}


def _parts(kinds: _Kinds) -> dict[str, list[str]]:
    """Divide the experiments into parts: by binary or multi-class, by size and by folder."""
    parts = {
        "binary": [name for name, (_, k, _) in kinds.items() if k == 2],
        "several classes": [name for name, (_, k, _) in kinds.items() if k > 2],
    }
    for kind, members in list(parts.items()):
        for title, (low, high) in SIZES.items():
            subset = [name for name in members if low <= kinds[name][0] < high]
            if len(subset) < len(members):
                parts[f"{kind}, {title} rows"] = subset
    for part, members in list(parts.items()):
        for folder in dict.fromkeys(kinds[name][2] for name in members):
            subset = [name for name in members if kinds[name][2] == folder]
            if len(subset) < len(members):
                parts[f"{part}, {folder}"] = subset
    return {title: names for title, names in parts.items() if names}


def _compare_all(
    all_losses: Mapping[str, Mapping[str, Mapping[str, float]]],
    method: str,
    groups: Mapping[str, str],
    kinds: _Kinds,
) -> dict[str, Any]:
    """Compare a method with all others in each part."""
    comparisons: dict[str, Any] = {}
    for part, names in _parts(kinds).items():
        for other, theirs in all_losses.items():
            comparison = _compare_one(all_losses[method], theirs, names, groups)
            if other != method and comparison:
                comparisons.setdefault(part, {})[other] = comparison
    return comparisons


def _improvements(
    all_losses: Mapping[str, Mapping[str, Mapping[str, float]]],
    groups: Mapping[str, str],
    kinds: _Kinds,
) -> dict[str, Any]:
    """Compare each method with the uncalibrated scores in each part."""
    improvements: dict[str, Any] = {}
    for part, names in _parts(kinds).items():
        for method, losses in all_losses.items():
            gains = _compare_one(losses, all_losses["uncalibrated"], names, groups)
            if method != "uncalibrated" and gains:
                improvements.setdefault(part, {})[method] = {
                    measure: {**gain, "difference": -gain["difference"]}
                    for measure, gain in gains.items()
                }
    return improvements


def _compare_one(
    losses: Mapping[str, Mapping[str, float]],
    other_losses: Mapping[str, Mapping[str, float]],
    names: Sequence[str],
    groups: Mapping[str, str],
) -> dict[str, Any]:
    """Compare two methods by each measure, on the experiments that both have."""
    common = [n for n in names if n in losses and n in other_losses]
    comparisons = {}
    for measure in MEASURED if common else ():
        first, second = (
            {n: by_experiment[n][measure] for n in common}
            for by_experiment in (losses, other_losses)
        )
        comparisons[measure] = {
            key: value if value == value else None
            for key, value in compare(first, second, groups).items()
        }
    return comparisons


def _means(
    all_losses: Mapping[str, Mapping[str, Mapping[str, float]]],
    kinds: _Kinds,
) -> dict[str, Any]:
    """Compute mean losses and win rates, on the experiments that all methods of a part have."""
    result: dict[str, Any] = {}
    for part, names in _parts(kinds).items():
        available = {
            m: losses for m, losses in all_losses.items() if any(n in losses for n in names)
        }
        common = [n for n in names if all(n in losses for losses in available.values())]
        result[part] = {
            "experiments": len(common),
            "methods": {
                m: {name: float(np.mean([losses[n][name] for n in common])) for name in MEASURED}
                for m, losses in available.items()
                if common
            },
        }
        for name in MEASURED if common and len(available) > 1 else ():
            table = {
                m: np.array([losses[n][name] for n in common]) for m, losses in available.items()
            }
            rates = (len(table) - average_ranks(table)) / (len(table) - 1)
            for m, rate in zip(table, rates.tolist(), strict=True):
                result[part]["methods"][m][f"{name}_win_rate"] = rate
    return result
