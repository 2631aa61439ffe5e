"""The synthetic study: ten methods on data from known generative models, and what none can beat.

Logistic regressions and predictions that know the prior, compared as the classes separate, as the
training set grows, and as it becomes unbalanced. Beside them stand the exact posterior predictive
and the predictions that know the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bayescal._core.keys import as_key
from bayescal.data.checks import check_count
from bayescal.sweeps._methods import as_recipes
from bayescal.sweeps._run import Run
from benchmarks.studies._published_synthetic import SOURCE
from benchmarks.studies._rankings import LEVEL
from benchmarks.studies._synthetic_cells import (
    METHODS,
    METRICS,
    QUESTIONS,
    Configuration,
    configurations,
)
from benchmarks.studies._synthetic_conclusions import conclude
from benchmarks.studies._synthetic_pictures import draw_ranks
from benchmarks.studies._synthetic_statistics import Values, describe, pair_rows, rankings
from benchmarks.studies.store import Progress, Results

__all__ = ["run"]


def run(
    out: str | Path,
    *,
    questions: Sequence[int] = tuple(QUESTIONS),
    methods: Sequence[str] | None = None,
    datasets: int = 1000,
    n_test: int = 10_000,
    seed: int = 0,
    about: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    r"""Compare the methods of the thesis on its synthetic configurations, and test its conclusions.

    In all configurations :math:`x \mid y \sim N(\mu_y, 1)`; each data set has means of its own,
    drawn from the prior. Training sets have fixed class counts, test sets are balanced.

    Parameters
    ----------
    out : path
        Folder for the results, made if it is missing: ``synthetic.csv`` with a row for each
        configuration, metric and method; ``synthetic_values.csv`` with a row for each data set;
        ``synthetic_pairs.csv`` with the tests of all pairs; ``synthetic.json``; pictures
        ``figure_22.svg`` and so on; and ``parts``, the finished blocks of data sets.
    questions : sequence of int
        1, separation of the classes; 2, size of the training set; 3, its share of class 1.
    methods : sequence of str, optional
        By default all: the seven logistic regressions "normal", "platt", "smoothed", "L1", "L2",
        "ibls" and "cauchy_map"; "preds", "coeffs" and "map", which know the prior, by quadrature;
        "predictive", the exact predictive; and "optimal", which knows the parameters.
    datasets : int
        For each configuration.
    n_test : int
        Size of each test set.
    seed : int
        Results depend on it and on nothing else.
    about : mapping of str to str, optional
        Versions and the like; written to the summary.
    progress : callable, optional
        Called with a configuration, the number of blocks done and that of all blocks.

    Returns
    -------
    dict
        The content of ``synthetic.json``. By configuration: means, standard errors, deviations and
        medians of log loss (nats) and ECE (a fraction, ten bins) by method; the shares of fits
        without a finite optimum; ``floor``, the expected log loss of the predictions that know the
        parameters, by quadrature; and ``published`` figures, with those marked that lie below the
        floor. By scope (a configuration, or all of a question) and metric: ``rankings``, of the ten
        methods of the thesis, and of these with "predictive": average ranks, Friedman's test,
        and groups of methods that do not differ by Wilcoxon's test with Holm's correction.
        ``conclusions`` of the thesis with where they hold.

    Raises
    ------
    ValueError
        For unknown questions and methods, and numbers out of range.
    OSError
        If results cannot be written.

    Notes
    -----
    What is finished is kept; a run that was killed goes on where it was, and more data sets or
    questions can be added. Equal configurations of two questions share their data. Data sets are
    worked on 125 at a time, so fewer take as long.

    A logistic regression without penalty has no finite optimum where a line separates the classes;
    its coefficients are then those of the last iterate, and its mean log loss says little beside
    its median and ranks.

    References
    ----------
    M. Maher (2020), Instance-based label smoothing for better classifier calibration, University of
    Tartu, section 7.1.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = run(
    ...         folder, questions=[1], methods=["platt", "optimal"], datasets=20, n_test=500
    ...     )
    >>> facts = found["configurations"]["1b"]
    >>> loss = facts["metrics"]["log_loss"]
    >>> loss["platt"]["mean"] > loss["optimal"]["mean"]
    True
    >>> print(f"{facts['floor']:.4f}", facts["published"]["log_loss"]["preds"]["mean"])
    0.2829 0.1846
    """
    unknown = [each for each in questions if each not in QUESTIONS]
    if unknown or not questions:
        raise ValueError(f"questions must be among 1, 2 and 3, got {list(questions)}")
    names = [m for m in METHODS if methods is None or m in methods]
    strange = [m for m in methods or () if m not in METHODS]
    if strange or not names:
        raise ValueError(f"methods must be among {', '.join(METHODS)}, got {list(methods or ())}")
    datasets = check_count(datasets, "datasets")
    n_test = check_count(n_test, "n_test")
    if datasets < 2 or n_test < 2:
        raise ValueError(
            f"datasets and n_test must be at least 2, got {datasets} and {n_test}: standard errors "
            "and balanced test sets need two"
        )
    kept = Results("synthetic", out, about)
    folder = kept.folder
    chosen = configurations(sorted(set(questions)), n_test)
    values, status, seconds = _sweep(folder, chosen, names, datasets, seed, progress)
    ranked = rankings(chosen, values)
    facts = describe(chosen, values, status)
    pictures = [
        path.name
        for question in dict.fromkeys(each.question for each in chosen)
        if (path := draw_ranks(folder, question, chosen, values))
    ]
    summary = {
        "source": SOURCE,
        "datasets": datasets,
        "n_test": n_test,
        "seed": seed,
        "level": LEVEL,
        "questions": {str(q): QUESTIONS[q] for q in sorted(set(questions))},
        "configurations": facts,
        "rankings": {
            scope: {
                metric: {name: each.summary() for name, each in some.items()}
                for metric, some in metrics.items()
            }
            for scope, metrics in ranked.items()
        },
        "conclusions": conclude(facts, ranked),
        "pictures": pictures,
        "seconds": seconds,
    }
    _write(kept, chosen, summary, values, status, pair_rows(ranked))
    return kept.summary("synthetic", summary)


def _sweep(
    folder: Path,
    chosen: Sequence[Configuration],
    names: Sequence[str],
    datasets: int,
    seed: int,
    progress: Progress | None,
) -> tuple[Mapping[str, Values], Mapping[str, Values], dict[str, float]]:
    """Return values and status by configuration and method, and seconds by stage."""
    first: dict[Any, str] = {}
    for each in chosen:
        first.setdefault(each.data, each.name)
    cells = {each.name: each.cell for each in chosen if first[each.data] == each.name}
    sweep = Run(cells, as_recipes(names), METRICS, datasets, as_key(seed))
    sweep.finish(None, folder / "parts", progress)
    values = {each.name: sweep.values[first[each.data]] for each in chosen}
    status = {each.name: sweep.status[first[each.data]] for each in chosen}
    return values, status, {stage: round(s, 3) for stage, s in sweep.seconds.items()}


def _write(
    kept: Results,
    chosen: Sequence[Configuration],
    summary: dict[str, Any],
    values: Mapping[str, Values],
    status: Mapping[str, Values],
    pairs: Sequence[Sequence[Any]],
) -> None:
    moments = "mean", "error", "deviation", "median"
    rows, single = [], []
    for each in chosen:
        facts = summary["configurations"][each.name]
        for metric, methods in facts["metrics"].items():
            for method, found in methods.items():
                known = facts["published"][metric].get(method)
                rows.append(
                    [
                        *(each.name, metric, method, *(found[key] for key in moments)),
                        facts["without_finite_optimum"][method],
                        *(("", "") if known is None else _published(known)),
                    ]
                )
        for method, own in values[each.name].items():
            ended = status[each.name][method]
            for number, (row, end) in enumerate(zip(own, ended, strict=True)):
                single.append([each.name, method, number, *row.tolist(), int(end)])
    head = "configuration", "metric", "method", *moments, "without_finite_optimum"
    kept.table("synthetic", (*head, "published", "impossible"), rows)
    head = "configuration", "method", "dataset", *METRICS, "status"
    kept.table("synthetic_values", head, single)
    head = "scope", "metric", "ranking", "better", "worse", "better_rank", "worse_rank", "p_value"
    kept.table("synthetic_pairs", head, pairs)


def _published(known: Mapping[str, Any]) -> tuple[Any, int]:
    """Return a published mean, and whether it lies below the floor."""
    mean = np.inf if known["mean"] is None else known["mean"]
    return mean, int(known["impossible"])
