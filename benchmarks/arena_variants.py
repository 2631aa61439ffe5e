"""Compare variants of the default calibrators on real scores, chosen on one half of the data.

    python -m benchmarks.arena_tables TABLES
    python -m benchmarks.arena_variants --arena DIR --networks DIR --tables TABLES [--json FILE]

For several classes, the variants are stacks of other members. They are evaluated with all
calibration rows of networks, with 100 to 1,000 of these rows, and on tables. All members are fitted
to all folds once, so stacks of subsets of them cost nothing more. For two classes, the variants are
other averages of the same regressions, on each table.

The result has every variant that was tried, and shows which data choices were based on; the others
confirm. Figures are mean log losses on test rows. Printed differences are relative to the published
members, or to the published average, in units of 0.0001.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import bayescal as bc
from bayescal._core.numerics import sigmoid
from bayescal._core.warnings import ignored
from bayescal.calibrators.binary.averaged_beta.calibrator import AveragedBeta, unchanged_weight
from bayescal.calibrators.binary.averaged_beta.regressions import FAR, LINEAR
from bayescal.calibrators.multiclass.members import Member
from bayescal.calibrators.stack import fit as _stack
from bayescal.calibrators.stack.calibrator import MEMBERS, _plan
from bayescal.calibrators.stack.fit import fit_stack, mixture
from bayescal.calibrators.stack.mixture import log_mean, mix
from bayescal.data.rows import Rows
from bayescal.data.scores import convert
from benchmarks import provenance
from benchmarks.studies.arena import Experiment, find_experiments, read_experiment

Array = np.ndarray
UNIT = 1e-4
#: Networks on which variants were chosen; the others confirm.
CHOSEN_ON = (
    "cnn-cy_cifar100_vgg16_bn",
    "cnn-cy_cifar10_resnet20",
    "cnn-gupta_resnet50_c10",
    "cnn-sctl_densenet40_c10_LT",
)
LIBRARY = {
    **{name: member for name, member in MEMBERS.items() if member.directions is None},
    "firm vector": Member(10, 10),
    "weakest": Member(0.03, 0.03, 0.01, (0.0003, 0.0001), (0.003, 0.0003)),
    "svs": Member(1, 1),
    "sms": Member(1, 1, None, None, (1, 1)),
    "svs, certainty": Member(1, 1, 1),
    "sms, certainty": Member(1, 1, 0.3, None, (1, 0.3)),
    "probability, weak": Member(0.3, 0.3, 0.1, (0.01, 0.01)),
    "certainty, weak": Member(0.3, 0.3, 0.1),
}
#: Other maps as members: a kernel average, and matrices on logarithms that are not centered.
OTHERS = {
    "kernel": lambda: bc.compose(bc.Temperature(inputs="logits"), bc.Kernel()),
    "uncentred": lambda: bc.StructuredMatrix(inputs="logits"),
}
#: Number of classes from which kernel averages are too slow, and stacks have no kernel members.
KERNEL_CLASS_LIMIT = 30
PUBLISHED = ["temperature", "both", "middle", "weak"]
FEW_ROWS = ["temperature", "vector", "firm", "probability", "logarithm", "both", "weak"]
MANY_CLASSES = ["temperature", "probability", "weak", "weaker"]
STACKS = {
    "published": PUBLISHED,
    "published, few rows": FEW_ROWS,
    "published, many classes": MANY_CLASSES,
    "first": ["temperature", "vector", "probability", "both", "weak"],
    "lighter": ["temperature", "firm vector", "vector", "logarithm", "middle", "weak"],
    **{f"and {name}": [*PUBLISHED, name] for name in LIBRARY if name not in PUBLISHED},
    "all": list(LIBRARY),
    **{f"and {name}": [*PUBLISHED, name] for name in OTHERS},
}

POWERS = 0.7, 0.5, 0.35, 0.25, 0.15


def mixtures(experiment: Experiment, rows: int) -> dict[str, float]:
    """Compute the mean test losses of all stacks, and of single members."""
    raw, y = experiment.scores, experiment.y
    if rows < len(raw):
        sample = np.random.default_rng(1).permutation(len(raw))[:rows]
        raw, y = raw[sample], y[sample]
    scores, smallest = convert(raw, experiment.inputs, "logits")
    test, _ = convert(experiment.test_scores, experiment.inputs, "logits", smallest)
    scores, test = scores.astype(float), test.astype(float)
    k, ones = scores.shape[1], np.ones(len(y))
    library = {
        name: member
        for name, member in LIBRARY.items()
        if member.kernel is None or k < KERNEL_CLASS_LIMIT
    }
    names, members = (list(part) for part in zip(*library.items(), strict=True))
    others = {
        name: make for name, make in OTHERS.items() if name != "kernel" or k < KERNEL_CLASS_LIMIT
    }
    fitted = fit_stack(members, scores, y, ones, 5)
    assert fitted.held is not None
    stack, folds = fitted.stack, fitted.folds
    fold_scores, fold_y, fold_weights = folds.take(scores, y)
    other_logs = np.empty((len(fold_y), len(others)))
    for fold in range(folds.count):
        held_fold = folds.fold == fold
        other_logs[held_fold] = other_log_probs(
            others.values(),
            fold_scores[~held_fold],
            fold_y[~held_fold],
            fold_scores[held_fold],
            fold_y[held_fold],
        )
    held_out = np.concatenate([fitted.held, other_logs], axis=1)
    row = np.arange(len(test)), experiment.test_y
    member_probs = [mixture(members, stack, unit, test)[row] for unit in np.eye(len(members))]
    other_logs = other_log_probs(others.values(), scores, y, test, experiment.test_y)
    test_logs = np.concatenate([np.log(member_probs).T, other_logs], axis=1)
    names = [*names, *others]
    losses = {}
    for title, stack_names in STACKS.items():
        if set(stack_names) <= set(names):
            index = [names.index(name) for name in stack_names]
            weights = mix(held_out[:, index], fold_weights)
            losses[title] = float(-log_mean(test_logs[:, index], weights).mean())
    for name, loss in zip(names, -test_logs.mean(axis=0), strict=True):
        losses[f"only {name}"] = float(loss)
    default = _plan(len(y), k)[0]
    for name in [None, *default]:
        index = [names.index(other) for other in default if other != name]
        title = "ours" if name is None else f"ours, without {name}"
        weights = mix(held_out[:, index], fold_weights)
        losses[title] = float(-log_mean(test_logs[:, index], weights).mean())
        if name is None:
            equal = np.full(len(index), 1 / len(index))
            losses["ours, equal weights"] = float(-log_mean(test_logs[:, index], equal).mean())
    data = scores, y, test, experiment.test_y
    for title, disable in DISABLED.items():
        losses[f"ours, {title}"] = refitted([MEMBERS[name] for name in default], data, disable)
    if experiment.inputs == "probs":
        pair = (np.log(np.maximum(part, 1e-300)) for part in (raw, experiment.test_scores))
        scores, test = (part.astype(float) for part in pair)
        data = scores, y, test, experiment.test_y
        losses["ours, zeros as 1e-300"] = refitted([MEMBERS[name] for name in default], data)
    return losses


def refitted(
    members: list[Member],
    rows: tuple[Array, Array, Array, Array],
    disable: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> float:
    """Fit a stack with one of its choices disabled, and compute its mean test loss."""
    scores, y, test, test_y = rows
    ones = np.ones(len(y))
    with disable():
        fitted = fit_stack(members, scores, y, ones, 5)
    assert fitted.held is not None
    probs = mixture(members, fitted.stack, mix(fitted.held, fitted.folds.weights), test)[
        np.arange(len(test_y)), test_y
    ]
    return float(-np.log(np.maximum(probs, 1e-300)).mean())


def _rescaled(**values: float) -> Callable[[], AbstractContextManager[Any]]:
    """Create a patch that replaces values in the result of ``fit_scale``."""
    real = _stack.fit_scale
    return partial(
        mock.patch.object, _stack, "fit_scale", lambda *rows: real(*rows)._replace(**values)
    )


#: Choices of the stack, and how to disable each one.
DISABLED: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "without smoothing": _rescaled(smoothing=1e-12),
    "scores as they are": _rescaled(inverse=1.0),
    "one scale for all folds": partial(mock.patch.object, _stack, "SMALL", 0),
    "thirty steps": partial(mock.patch.multiple, _stack, FEW_TOLERANCE=1e-12, FOLD_SHARE=0.0),
}


def other_log_probs(
    makers: Iterable[Callable[[], Any]], scores: Array, y: Array, test: Array, test_y: Array
) -> Array:
    """Fit other maps, and compute log probabilities (m, maps) of the test rows' labels."""
    columns = []
    for make in makers:
        model = make().set_params(classes=tuple(range(scores.shape[1])))
        with ignored(ConvergenceWarning):
            probs = model.fit(scores, y).predict_proba(test)
        columns.append(np.log(np.maximum(probs[np.arange(len(test_y)), test_y], 1e-15)))
    return np.stack(columns, axis=1)


def averages(experiment: Experiment) -> dict[str, float]:
    """Compute the mean test losses of averages of the regressions for two classes."""
    smallest = float(np.finfo(np.float32).tiny)

    def log_odds(p: Array) -> Array:
        return np.log(np.maximum(p[:, 1], smallest)) - np.log(np.maximum(p[:, 0], smallest))

    method = AveragedBeta(power=1.0)
    ones = np.ones(len(experiment.y))
    state = method._fit(Rows(log_odds(experiment.scores), experiment.y, ones), 0)
    test_log_odds = np.clip(log_odds(experiment.test_scores), -FAR, FAR)
    lines, columns = method._lines(state, test_log_odds)
    variances = method._variances(state, columns)
    weights = state["cell_weights"]

    def mean(values: Array, power: float = 1.0) -> Array:
        return np.einsum("dc,dcm->m", weights**power / (weights**power).sum(), values)

    def part(selected: Array) -> Array:
        selected_weights = np.where(selected, weights, 0) ** 0.5
        return np.einsum("dc,dcm->m", selected_weights / selected_weights.sum(), sigmoid(lines))

    average, unchanged = mean(sigmoid(lines), 0.5), unchanged_weight(state, 0.5)
    inverse = state["inverse"][:, None]
    best = inverse[weights.sum(axis=1).argmax()]
    predictions = {
        "published": mean(sigmoid(lines)),
        "moderated by the posterior": mean(sigmoid(lines / np.sqrt(1 + np.pi * variances / 8))),
        "mean log odds": sigmoid(mean(lines)),
        **{f"evidence to the power {p:g}": mean(sigmoid(lines), p) for p in POWERS},
        "ours": (1 - unchanged) * average + unchanged * sigmoid(test_log_odds),
        "ours, without unchanged scores": average,
        "ours, without curves": part(np.arange(weights.shape[1]) >= LINEAR),
        "ours, one temperature": part(np.abs(np.log(inverse / best)) < 1e-9),
        "ours, the best regression alone": part(weights == weights.max()),
    }
    y = experiment.test_y
    return {
        name: float(-np.mean(np.log(np.clip(np.where(y == 1, p, 1 - p), 1e-15, 1))))
        for name, p in predictions.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arena", type=Path, required=True, help="folder of tables' scores")
    parser.add_argument("--networks", type=Path, required=True, help="folder of networks' scores")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--tables", type=Path, help="folder written by arena_tables.py")
    options = parser.parse_args()
    multiclass: dict[str, Any] = {}
    tables = {} if options.tables is None else find_experiments([options.tables])
    table_names = sorted({name.rpartition("-")[0] for name in tables})
    for name, path in (tables | find_experiments([options.networks])).items():
        experiment = read_experiment(name, path)
        n, k = experiment.scores.shape
        chosen = name in CHOSEN_ON
        sizes = *((100, 300, 1000) if k < 30 else (1000,)), n
        if name in tables:
            chosen, sizes = table_names.index(name.rpartition("-")[0]) % 2 == 0, (n,)
        for rows in sizes:
            losses = mixtures(experiment, rows)
            multiclass[f"{name}, {rows} rows"] = {
                "classes": k,
                "rows": rows,
                "chosen_on": chosen,
                "losses": losses,
            }
            gain = losses["first"] - losses["published"]
            print(f"{name}, {rows} rows: gains {gain / UNIT:+.1f} on the first stack", flush=True)
            keep(options.json, {"several": multiclass})
    paths = find_experiments([options.arena])
    table_names = sorted({name.rpartition("-")[0] for name in paths})
    binary = {}
    for name, path in paths.items():
        group = name.rpartition("-")[0]
        losses = averages(read_experiment(name, path))
        binary[name] = {"chosen_on": table_names.index(group) % 2 == 0, "losses": losses}
    for chosen in (True, False):
        all_losses = [row["losses"] for row in binary.values() if row["chosen_on"] == chosen]
        published = np.mean([losses["published"] for losses in all_losses])
        print(
            "chosen on" if chosen else "confirmed on", len(all_losses), "experiments of two classes"
        )
        for variant in all_losses[0]:
            difference = np.mean([losses[variant] for losses in all_losses]) - published
            print(f"  {variant}: {difference / UNIT:+.2f}")
    keep(options.json, {"several": multiclass, "binary": binary})


def keep(path: Path | None, results: dict[str, Any]) -> None:
    """Write the results if a path is given."""
    if path is not None:
        provenance.write(path, results)


if __name__ == "__main__":
    main()
