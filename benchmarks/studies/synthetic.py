"""The synthetic study: compare ten methods with the optimum, on known generative models.

The methods are logistic regressions and predictions that know the prior. They are compared as the
classes separate, as the training set grows, and as it becomes imbalanced. The exact posterior
predictive and predictions that know the parameters are added for reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bayescal._core.random.keys import as_key
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

    In all configurations :math:`x \mid y \sim N(\mu_y, 1)`, and the means of each data set are
    drawn from the prior. Training sets have fixed class counts; test sets are balanced.

    Parameters
    ----------
    out : path
        Folder for the results, created if it is missing: ``synthetic.csv`` with a row for each
        configuration, metric and method; ``synthetic_values.csv`` with a row for each data set;
        ``synthetic_pairs.csv`` with the tests of all pairs; ``synthetic.json``; pictures
        ``figure_22.svg`` and so on; and ``parts`` with the finished blocks of data sets.
    questions : sequence of int
        1, separation of the classes; 2, size of the training set; 3, its share of class 1.
    methods : sequence of str, optional
        By default all: the seven logistic regressions "normal", "platt", "smoothed", "L1", "L2",
        "ibls" and "cauchy_map"; "preds", "coeffs" and "map", which know the prior, by quadrature;
        "predictive", the exact predictive; and "optimal", which knows the parameters.
    datasets : int
        Number of data sets of each configuration.
    n_test : int
        Size of each test set.
    seed : int
        Seed of all random numbers; equal seeds give equal results.
    about : mapping of str to str, optional
        Versions and similar facts; written to the summary.
    progress : callable, optional
        Called with a configuration, the number of finished blocks and the total number of blocks.

    Returns
    -------
    dict
        The content of ``synthetic.json``. ``configurations`` contains, for each configuration:
        means, standard errors, standard deviations and medians of log loss (nats) and ECE (a
        fraction, ten bins) by method; the shares of fits without a finite optimum; ``floor``, the
        expected log loss of the predictions that know the parameters, by quadrature; and
        ``published`` figures, with a mark on those below the floor. ``rankings``, by scope (a
        configuration, or all of a question) and metric, rank the ten methods of the thesis, and
        these with "predictive": average ranks, Friedman's test, and groups of methods that do not
        differ by Wilcoxon's test with Holm's correction. ``conclusions`` are those of the thesis,
        with the configurations in which they hold.

    Raises
    ------
    ValueError
        If questions or methods are unknown, or numbers are out of range.
    OSError
        If results cannot be written.

    Notes
    -----
    Finished blocks are kept: an interrupted run resumes where it stopped, and more data sets or
    questions can be added. Equal configurations of two questions share their data. Data sets are
    processed in blocks of 125, so fewer data sets take as long.

    A logistic regression without penalty has no finite optimum if a line separates the classes. Its
    coefficients are then those of the last iterate, and its mean log loss is less informative than
    its median and ranks.

    References
    ----------
    M. Maher (2020), Instance-based label smoothing for better classifier calibration, University of
    Tartu, section 7.1.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = run(
    ...         folder, questions=[1], methods=["platt", "optimal"], datasets=20, n_test=500
    ...     )
    >>> facts = result["configurations"]["1b"]
    >>> loss = facts["metrics"]["log_loss"]
    >>> loss["platt"]["mean"] > loss["optimal"]["mean"]
    True
    >>> print(f"{facts['floor']:.4f}", facts["published"]["log_loss"]["preds"]["mean"])
    0.2829 0.1846
    """
    unknown_questions = [q for q in questions if q not in QUESTIONS]
    if unknown_questions or not questions:
        raise ValueError(f"questions must be among 1, 2 and 3, got {list(questions)}")
    names = [m for m in METHODS if methods is None or m in methods]
    unknown_methods = [m for m in methods or () if m not in METHODS]
    if unknown_methods or not names:
        raise ValueError(f"methods must be among {', '.join(METHODS)}, got {list(methods or ())}")
    datasets = check_count(datasets, "datasets")
    n_test = check_count(n_test, "n_test")
    if datasets < 2 or n_test < 2:
        raise ValueError(
            f"datasets and n_test must be at least 2, got {datasets} and {n_test}: standard errors "
            "and balanced test sets need two"
        )
    store = Results("synthetic", out, about)
    folder = store.folder
    selected = configurations(sorted(set(questions)), n_test)
    values, status, seconds = _sweep(folder, selected, names, datasets, seed, progress)
    by_scope = rankings(selected, values)
    facts = describe(selected, values, status)
    pictures = [
        path.name
        for question in dict.fromkeys(configuration.question for configuration in selected)
        if (path := draw_ranks(folder, question, selected, values))
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
                metric: {name: ranking.summary() for name, ranking in by_ranking.items()}
                for metric, by_ranking in metrics.items()
            }
            for scope, metrics in by_scope.items()
        },
        "conclusions": conclude(facts, by_scope),
        "pictures": pictures,
        "seconds": seconds,
    }
    _write(store, selected, summary, values, status, pair_rows(by_scope))
    return store.summary("synthetic", summary)


def _sweep(
    folder: Path,
    selected: Sequence[Configuration],
    names: Sequence[str],
    datasets: int,
    seed: int,
    progress: Progress | None,
) -> tuple[Mapping[str, Values], Mapping[str, Values], dict[str, float]]:
    """Run the sweep; return values and status by configuration and method, seconds by stage."""
    first: dict[Any, str] = {}
    for configuration in selected:
        first.setdefault(configuration.data, configuration.name)
    cells = {
        configuration.name: configuration.cell
        for configuration in selected
        if first[configuration.data] == configuration.name
    }
    sweep = Run(cells, as_recipes(names), METRICS, datasets, as_key(seed))
    sweep.finish(None, folder / "parts", progress)
    values = {
        configuration.name: sweep.values[first[configuration.data]] for configuration in selected
    }
    status = {
        configuration.name: sweep.status[first[configuration.data]] for configuration in selected
    }
    return values, status, {stage: round(s, 3) for stage, s in sweep.seconds.items()}


def _write(
    store: Results,
    selected: Sequence[Configuration],
    summary: dict[str, Any],
    values: Mapping[str, Values],
    status: Mapping[str, Values],
    pairs: Sequence[Sequence[Any]],
) -> None:
    """Write the three tables of results."""
    moments = "mean", "error", "deviation", "median"
    rows, single_rows = [], []
    for configuration in selected:
        facts = summary["configurations"][configuration.name]
        for metric, methods in facts["metrics"].items():
            for method, result in methods.items():
                figure = facts["published"][metric].get(method)
                rows.append(
                    [
                        *(configuration.name, metric, method, *(result[key] for key in moments)),
                        facts["without_finite_optimum"][method],
                        *(("", "") if figure is None else _published(figure)),
                    ]
                )
        for method, scores in values[configuration.name].items():
            fit_status = status[configuration.name][method]
            for number, (row, row_status) in enumerate(zip(scores, fit_status, strict=True)):
                single_rows.append(
                    [configuration.name, method, number, *row.tolist(), int(row_status)]
                )
    head = "configuration", "metric", "method", *moments, "without_finite_optimum"
    store.table("synthetic", (*head, "published", "impossible"), rows)
    head = "configuration", "method", "dataset", *METRICS, "status"
    store.table("synthetic_values", head, single_rows)
    head = "scope", "metric", "ranking", "better", "worse", "better_rank", "worse_rank", "p_value"
    store.table("synthetic_pairs", head, pairs)


def _published(known: Mapping[str, Any]) -> tuple[Any, int]:
    """Return a published mean, and 1 if it lies below the floor or else 0."""
    mean = np.inf if known["mean"] is None else known["mean"]
    return mean, int(known["impossible"])
