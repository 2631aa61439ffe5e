"""Multi-class calibration maps on predictions of convolutional networks.

Every map is fitted to the validation rows of a network and measured on its test rows. If a network
has only test rows, half of the rows of each class are used for calibration. Maps are run with their
default options, some also in variants with other options. Maps that correct locally or by decisions
are also run after temperature scaling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies._calibrators import FACTS, find_methods, over_runs, run_method
from benchmarks.studies._measures import EPS, MEASURES
from benchmarks.studies._networks import find_networks, read_network
from benchmarks.studies._published import beside, published_figures
from benchmarks.studies.store import Progress, Results, counted

__all__ = ["METRICS", "evaluate", "run"]

#: Metrics of the test rows; errors are fractions.
METRICS = tuple(MEASURES)


def run(
    data: str | Path,
    out: str | Path,
    *,
    networks: Sequence[str] | None = None,
    maps: Sequence[str] | None = None,
    seeds: int = 1,
    about: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    r"""Fit every map to every network, and write the results together with published figures.

    The results of each network, map and seed are written to a separate file under ``out/parts`` as
    soon as they are finished, and later runs reuse them. Files that are broken, or that are from
    different data, options or a different ``about``, are computed again.

    Parameters
    ----------
    data : path
        Folder of .npz files with ``logits_test`` or ``probs_test`` (m, k) and ``y_test`` (m,), and
        optionally calibration rows ``logits_val`` or ``probs_val`` (n, k) and ``y_val`` (n,); or a
        folder that contains such a folder as ``predictions``. Other .npz files are ignored.
    out : path
        Folder for the results, created if it is missing: ``cnn.csv`` with a row for each network,
        map and seed; ``cnn.json``; and ``parts``.
    networks : sequence of str, optional
        Names of networks, which are the stems of their files; by default all.
    maps : sequence of str, optional
        By default all: "uncalibrated", names of registered maps, variants such as "matrix_odir",
        and compositions such as "temperature+knn".
    seeds : int
        Number of fits of each random map; their seeds are 0, 1, ...
    about : mapping of str to str, optional
        Versions and similar facts that results depend on; written to the summary.
    progress : callable, optional
        Called with network and map, the number of finished parts and the total number of parts,
        before each part and at the end.

    Returns
    -------
    dict
        The content of ``cnn.json``. ``networks`` contains, by network: numbers of rows and classes,
        and the source of the calibration rows; by map the metrics (means over seeds, with their
        ``spread``, the smallest and largest value, if there are several), ``status`` of the fit and
        seconds; ``published`` figures with ours, and ``remarks`` on them.

    Raises
    ------
    ValueError
        If a file cannot be read, or a network or map is unknown.
    OSError
        If results cannot be written.

    Notes
    -----
    Metrics are accuracy; the calibration error of the confidence in 15 bins of equal width, in 15
    bins of equal mass, and in 25 bins of equal width; the class-wise calibration error in 15 bins
    of both kinds; the Brier score, summed over classes; the log loss, clipped at 1e-15; and the
    average loss gap of 500 random losses of two decisions. Seconds include compilation if a map
    uses JAX.

    References
    ----------
    K. Valk (2022), Calibration of multi-class probabilistic classifiers, University of Tartu,
    section 4.3.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> z = 3 * rng.normal(size=(200, 3))
    >>> y = (z / 3 + rng.gumbel(size=z.shape)).argmax(axis=1)
    >>> parts = {"logits_val": z[:100], "y_val": y[:100]}
    >>> parts |= {"logits_test": z[100:], "y_test": y[100:]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder)
    ...     np.savez(path / "net.npz", **parts)
    ...     result = run(path, path / "out", maps=["uncalibrated", "temperature"])
    >>> losses = {
    ...     name: facts["log_loss"] for name, facts in result["networks"]["net"]["maps"].items()
    ... }
    >>> losses["temperature"] < losses["uncalibrated"]
    True
    """
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    methods, missing = find_methods(maps)
    paths = find_networks(Path(data), networks)
    store = Results("cnn", out, about)
    runs = [(name, m, seed) for name in paths for m in methods for seed in m.seeds(seeds)]
    rows, answers = [], {}
    results: dict[str, Any] = {}
    network = None
    for name, method, seed in counted(runs, lambda run: f"{run[0]}: {run[1].name}", progress):
        if network is None or network.name != name:
            network = read_network(name, paths[name])
            results[name] = {
                "rows": {"calibration": len(network.y), "test": len(network.test_y)},
                "classes": network.scores.shape[1],
                "split": network.split,
            }
        question = {
            "network": name,
            "map": method.question(),
            "seed": seed,
            "data": network.digest,
        }
        task = network.scores, network.y, network.test_scores, network.test_y, method.name
        answer = store.part(
            f"cnn-{name}-{method.name}-{seed}",
            question,
            lambda old, task=task, seed=seed, inputs=network.inputs: (
                old or evaluate(*task, inputs=inputs, seed=seed)
            ),
        )
        rows.append([name, method.name, seed, *(answer[key] for key in (*METRICS, *FACTS))])
        answers.setdefault((name, method.name), []).append(answer)
    for name, facts in results.items():
        facts["maps"] = {m.name: over_runs(answers[name, m.name], METRICS) for m in methods}
        facts["published"] = beside(published_figures(name, Path(data)), facts["maps"])
    store.table("cnn", ("network", "map", "seed", *METRICS, *FACTS), rows)
    summary = {"eps": EPS, "seeds": seeds, "not_registered": missing, "networks": results}
    return store.summary("cnn", summary)


def evaluate(
    scores: np.ndarray,
    y: np.ndarray,
    test_scores: np.ndarray,
    test_y: np.ndarray,
    method: str,
    *,
    inputs: str = "logits",
    seed: int = 0,
) -> dict[str, Any]:
    """Fit one map to one network, and compute its metrics.

    Parameters
    ----------
    scores, test_scores : arrays of shape (n, k) and (m, k)
    y, test_y : arrays of shape (n,) and (m,)
        Labels in {0, ..., k - 1}.
    method : str
        The name of a map, as in :func:`run`.
    inputs : {"logits", "probs"}
    seed : int

    Returns
    -------
    dict
        The metrics, ``status`` of the fit, ``fit_seconds`` and ``predict_seconds``.

    Raises
    ------
    ValueError
        If the map is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> z = np.eye(3)[[0, 1, 2, 0, 1, 2]] * 4
    >>> y = np.array([0, 1, 2, 0, 1, 0])
    >>> result = evaluate(z, y, z, y, "temperature")
    >>> result["status"], round(result["accuracy"], 2), round(result["ece"], 2)
    ('converged', 0.83, 0.0)
    """
    (selected,), _ = find_methods([method])
    outcome = run_method(selected, scores, y, test_scores, inputs, seed)  # type: ignore[arg-type]
    return {
        **{name: measure(outcome.probs, test_y) for name, measure in MEASURES.items()},
        **outcome.facts(),
    }
