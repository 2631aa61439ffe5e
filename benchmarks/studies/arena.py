"""Who calibrates best: calibrators against each other, and against others' figures, head to head.

An experiment is a classifier's scores on calibration and on test rows. Methods are compared by win
rates and paired differences, by class of size.
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
#: Of peers' files: names of the same measures there.
_THERE = {"log_loss": "log_loss", "brier_score": "brier", "ece": "ece15"}
#: By rows to calibrate on.
SIZES = {"below 100": (0, 100), "100 to 999": (100, 1000), "from 1,000": (1000, 1 << 60)}
_PROBABILITIES = {"pc", "yc", "pt", "yt"}
#: By experiment: rows to calibrate on, classes, and the folder.
_Kinds = dict[str, tuple[int, int, str]]
_NETWORKS = {"logits_test", "y_test"}, {"probs_test", "y_test"}


class Experiment(NamedTuple):
    """Scores of calibration and test rows, with two columns or more, and labels.

    Attributes
    ----------
    name, group : str
        Experiments of a group, as models of one table, are averaged before errors are taken.
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
    """Return a calibrator by its name, or None if it is for another number of classes."""
    import bayescal as bc

    k = experiment.scores.shape[1]
    several = {
        "stacked_single": bc.StackedScaling("single"),
        "structured_vector": bc.StructuredVector(),
        "structured_matrix": bc.StructuredMatrix(),
        "temperature": bc.Temperature(),
        "ensemble_temperature": bc.EnsembleTemperature(),
    }
    binary = {"beta": bc.Beta(), "isotonic": bc.Isotonic(), "venn_abers": bc.VennAbers()}
    if name in binary and k > 2:
        return None
    made: Any = {"auto": bc.Auto(), **several, **binary}[name]
    return made.set_params(inputs=experiment.inputs, classes=tuple(range(k)))


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
    """Return the files of experiments by name.

    Parameters
    ----------
    folders : sequence of paths
        Of .npz files with probabilities ``pc`` (n, k), ``pt`` (m, k) and labels ``yc`` and ``yt``;
        or with ``logits_test`` or ``probs_test`` (m, k), ``y_test`` and perhaps the same of
        ``val``: these are called ``cnn-NAME``. Other files are passed over.

    Raises
    ------
    ValueError
        If a folder is none, or no experiment is found.
    """
    found = {}
    for folder in folders:
        for path in sorted(check_folder(folder).glob("*.npz")):
            held = array_names(path) or set()
            if held >= _PROBABILITIES:
                found[path.stem] = path
            elif any(held >= names for names in _NETWORKS):
                found[f"cnn-{path.stem}"] = path
    if not found:
        raise ValueError(
            f"{', '.join(map(str, folders))} must hold .npz files with pc, yc, pt and yt, or with "
            "logits_test or probs_test and y_test"
        )
    return found


def read_experiment(name: str, path: Path) -> Experiment:
    """Read one; without validation rows a random half of the test rows calibrates."""
    arrays = read_arrays(path)
    if _PROBABILITIES <= set(arrays):
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
        own, rest = np.split(order, [len(test) // 2])
        scores, y, test, test_y = test[own], test_y[own], test[rest], test_y[rest]
    return Experiment(name, name, inputs, scores, y, test, test_y)


def _two_columns(probs: np.ndarray) -> np.ndarray:
    """Return two columns that sum to one: those of single precision do not, to double."""
    if probs.shape[1] > 2:
        return probs
    return probs / probs.sum(axis=1, keepdims=True)


def evaluate(experiment: Experiment, method: str) -> dict[str, float] | None:
    """Fit a method, and return its measures on the test rows and the seconds it took."""
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

        with ignored(ConvergenceWarning):  # of many experiments some are separable
            model.fit(experiment.scores, experiment.y)
        probs = model.predict_proba(experiment.test_scores)
    seconds = time.perf_counter() - start
    found = {name: float(MEASURES[name](probs, experiment.test_y)) for name in MEASURED}
    return {**found, "seconds": seconds}


def compare(
    ours: Mapping[str, float], theirs: Mapping[str, float], groups: Mapping[str, str]
) -> dict[str, float]:
    """Return how often ``ours`` is lower, ties being half, and the mean difference with its error.

    Parameters
    ----------
    ours, theirs : dict of float
        A loss by experiment; those in both count.
    groups : dict of str
        By experiment. Differences are averaged within groups; standard errors are those of means
        over groups.

    Returns
    -------
    dict
        ``experiments``, ``groups``, ``win_rate``, ``difference`` and their standard errors
        ``win_error`` and ``error``.

    Examples
    --------
    >>> ours, theirs = {"a": 0.1, "b": 0.2, "c": 0.3}, {"a": 0.2, "b": 0.2, "c": 0.2}
    >>> found = compare(ours, theirs, {"a": "x", "b": "x", "c": "y"})
    >>> round(found["win_rate"], 3), round(found["difference"], 3)
    (0.5, 0.025)
    """
    both = [name for name in ours if name in theirs]
    gaps = np.array([ours[name] - theirs[name] for name in both])
    wins = np.where(gaps < 0, 1.0, np.where(gaps > 0, 0.0, 0.5))
    names, place = np.unique([groups[name] for name in both], return_inverse=True)
    means = [np.bincount(place, own) / np.bincount(place) for own in (gaps, wins)]
    many = len(names) > 1
    errors = [own.std(ddof=1) / np.sqrt(len(own)) if many else float("nan") for own in means]
    return {
        "experiments": len(both),
        "groups": len(names),
        "win_rate": float(wins.mean()) if both else float("nan"),
        "difference": float(means[0].mean()) if both else float("nan"),
        "error": float(errors[0]),
        "win_error": float(errors[1]),
    }


def read_peers(folders: Iterable[str | Path]) -> dict[str, dict[str, dict[str, float]]]:
    """Return measures by peer and experiment from files ``peers.csv``, if there are any."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for folder in map(Path, folders):
        path = folder / "peers.csv"
        if not path.is_file():
            continue
        with path.open(newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                own = {name: float(row[there]) for name, there in _THERE.items()}
                found.setdefault(row["method"], {})[row["experiment"]] = own
    return found


def run(
    data: Sequence[str | Path],
    out: str | Path,
    *,
    methods: Sequence[str] | None = None,
    against: Mapping[str, Any] | None = None,
    about: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    r"""Run all methods on all experiments, and compare the first of them with every other and peer.

    Parameters
    ----------
    data : sequence of paths
        See :func:`find_experiments`; a file ``peers.csv`` there has the figures of others, with
        columns experiment, method, log_loss, brier and ece15.
    out : path
        Folder for ``arena.csv``, a row for each experiment and method, and ``arena.json``.
    methods : sequence of str, optional
        Of :data:`METHODS`; by default all.
    against : dict of callables, optional
        More peers: each takes probabilities and labels of calibration rows, and probabilities of
        test rows, and returns calibrated ones.
    about : mapping of str to str, optional
        Versions and the like; written to the summary.
    progress : callable, optional
        Called with an experiment, the number done and that of all.

    Returns
    -------
    dict
        The content of ``arena.json``: ``comparisons`` by part ("binary", "several classes", both by
        size, and all of these by folder), opponent and measure, as from :func:`compare`;
        ``improvements`` by part, method and measure: by how much it is lower than that of the
        uncalibrated scores (post-hoc improvement), mean over groups and standard error, and how
        often; ``means`` of losses by part and method, and the share of the other methods and
        experiments that it beats, ties being half, over the experiments that all methods and peers
        have.

    Notes
    -----
    Log losses clip probabilities at 1e-15; the Brier score is summed over classes; the expected
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
    kept = Results("arena", out, about)
    kinds: _Kinds = {}
    results: dict[str, dict[str, dict[str, float]]] = {}
    groups, rows = {}, []
    for name in counted(paths, str, progress):
        experiment = read_experiment(name, paths[name])
        n, k = experiment.scores.shape
        groups[name], kinds[name] = experiment.group, (n, k, paths[name].parent.name)
        for method in ("uncalibrated", *names):
            found = evaluate(experiment, method)
            if found is not None:
                results.setdefault(method, {})[name] = found
                rows.append([name, method, k, n, *found.values()])
        for method, fit in (against or {}).items():
            found = _of_peer(experiment, fit)
            results.setdefault(method, {})[name] = found
            rows.append([name, method, k, n, *found.values()])
    peers = {f"peer {name}": own for name, own in read_peers(data).items()}
    header = ["experiment", "method", "classes", "rows", *MEASURED, "seconds"]
    kept.table("arena", header, rows)
    everyone = {**results, **peers}
    summary = {
        "method": names[0],
        "experiments": len(paths),
        "comparisons": _compare_all(everyone, names[0], groups, kinds),
        "improvements": _improvements(everyone, groups, kinds),
        "means": _means(everyone, kinds),
    }
    return kept.summary("arena", summary)


def _of_peer(experiment: Experiment, fit: Callable[..., np.ndarray]) -> dict[str, float]:
    from bayescal._core.numerics import softmax

    parts = experiment.scores, experiment.test_scores
    if experiment.inputs == "logits":
        parts = tuple(softmax(part) for part in parts)
    start = time.perf_counter()
    probs = fit(parts[0], experiment.y, parts[1])
    seconds = time.perf_counter() - start
    found = {name: float(MEASURES[name](probs, experiment.test_y)) for name in MEASURED}
    return {**found, "seconds": seconds}


def _parts(kinds: _Kinds) -> dict[str, list[str]]:
    """Return the experiments of each part."""
    parts = {
        "binary": [name for name, (_, k, _) in kinds.items() if k == 2],
        "several classes": [name for name, (_, k, _) in kinds.items() if k > 2],
    }
    for kind, every in list(parts.items()):
        for title, (low, high) in SIZES.items():
            own = [name for name in every if low <= kinds[name][0] < high]
            if len(own) < len(every):
                parts[f"{kind}, {title} rows"] = own
    for part, every in list(parts.items()):
        for folder in dict.fromkeys(kinds[name][2] for name in every):
            own = [name for name in every if kinds[name][2] == folder]
            if len(own) < len(every):
                parts[f"{part}, {folder}"] = own
    return {title: names for title, names in parts.items() if names}


def _compare_all(
    everyone: Mapping[str, Mapping[str, Mapping[str, float]]],
    method: str,
    groups: Mapping[str, str],
    kinds: _Kinds,
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part, names in _parts(kinds).items():
        for other, theirs in everyone.items():
            own = _compare_one(everyone[method], theirs, names, groups)
            if other != method and own:
                found.setdefault(part, {})[other] = own
    return found


def _improvements(
    everyone: Mapping[str, Mapping[str, Mapping[str, float]]],
    groups: Mapping[str, str],
    kinds: _Kinds,
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part, names in _parts(kinds).items():
        for method, own in everyone.items():
            gains = _compare_one(own, everyone["uncalibrated"], names, groups)
            if method != "uncalibrated" and gains:
                found.setdefault(part, {})[method] = {
                    measure: {**gain, "difference": -gain["difference"]}
                    for measure, gain in gains.items()
                }
    return found


def _compare_one(
    own: Mapping[str, Mapping[str, float]],
    other: Mapping[str, Mapping[str, float]],
    names: Sequence[str],
    groups: Mapping[str, str],
) -> dict[str, Any]:
    """Return comparisons by measure over the experiments that both have."""
    common = [n for n in names if n in own and n in other]
    found = {}
    for measure in MEASURED if common else ():
        each = ({n: losses[n][measure] for n in common} for losses in (own, other))
        found[measure] = {
            key: value if value == value else None for key, value in compare(*each, groups).items()
        }
    return found


def _means(
    everyone: Mapping[str, Mapping[str, Mapping[str, float]]],
    kinds: _Kinds,
) -> dict[str, Any]:
    """Return mean measures over the experiments that all methods of a part have."""
    found: dict[str, Any] = {}
    for part, names in _parts(kinds).items():
        able = {m: own for m, own in everyone.items() if any(n in own for n in names)}
        common = [n for n in names if all(n in own for own in able.values())]
        found[part] = {
            "experiments": len(common),
            "methods": {
                m: {name: float(np.mean([own[n][name] for n in common])) for name in MEASURED}
                for m, own in able.items()
                if common
            },
        }
        for name in MEASURED if common and len(able) > 1 else ():
            table = {m: np.array([own[n][name] for n in common]) for m, own in able.items()}
            rates = (len(table) - average_ranks(table)) / (len(table) - 1)
            for m, rate in zip(table, rates.tolist(), strict=True):
                found[part]["methods"][m][f"{name}_win_rate"] = rate
    return found
