"""Variants of the default calibrators on real scores: chosen on one part, confirmed on the other.

    python benchmarks/arena_tables.py TABLES
    python -m benchmarks.arena_variants --arena DIR --networks DIR --tables TABLES [--json FILE]

Several classes: stacks of other members, on whole calibration parts and on 100 to 1,000 of their
rows, and on tables. All members are fitted to all folds once; stacks of some of them then cost
nothing. Two classes: other averages of the same regressions, by table.

Every variant that was tried is here. Figures are mean log losses on test rows less those of the
published set of members, or of the published average, in units of 0.0001.
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
#: Networks that variants were chosen on; those left confirm.
CHOSEN_ON = (
    "cnn-cy_cifar100_vgg16_bn",
    "cnn-cy_cifar10_resnet20",
    "cnn-gupta_resnet50_c10",
    "cnn-sctl_densenet40_c10_LT",
)
LIBRARY = {
    **{name: own for name, own in MEMBERS.items() if own.directions is None},
    "firm vector": Member(10, 10),
    "weakest": Member(0.03, 0.03, 0.01, (0.0003, 0.0001), (0.003, 0.0003)),
    "svs": Member(1, 1),
    "sms": Member(1, 1, None, None, (1, 1)),
    "svs, certainty": Member(1, 1, 1),
    "sms, certainty": Member(1, 1, 0.3, None, (1, 0.3)),
    "probability, weak": Member(0.3, 0.3, 0.1, (0.01, 0.01)),
    "certainty, weak": Member(0.3, 0.3, 0.1),
}
#: Other maps of the same scores, as members: one local, and matrices on logarithms not centered.
OTHERS = {
    "kernel": lambda: bc.compose(bc.Temperature(inputs="logits"), bc.Kernel()),
    "uncentred": lambda: bc.StructuredMatrix(inputs="logits"),
}
#: Local averages are slow for more classes, and stacks have no members with kernels there.
LOCAL = 30
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
    """Return mean test losses of all stacks, and of members alone."""
    raw, y = experiment.scores, experiment.y
    if rows < len(raw):
        own = np.random.default_rng(1).permutation(len(raw))[:rows]
        raw, y = raw[own], y[own]
    scores, least = convert(raw, experiment.inputs, "logits")
    test, _ = convert(experiment.test_scores, experiment.inputs, "logits", least)
    scores, test = scores.astype(float), test.astype(float)
    k, ones = scores.shape[1], np.ones(len(y))
    library = {name: own for name, own in LIBRARY.items() if own.kernel is None or k < LOCAL}
    names, members = (list(part) for part in zip(*library.items(), strict=True))
    others = {name: make for name, make in OTHERS.items() if name != "kernel" or k < LOCAL}
    fitted = fit_stack(members, scores, y, ones, 5)
    assert fitted.held is not None
    stack, folds = fitted.stack, fitted.folds
    dealt, dealt_y, dealt_weights = folds.take(scores, y)
    theirs = np.empty((len(dealt_y), len(others)))
    for fold in range(folds.count):
        out = folds.fold == fold
        theirs[out] = by_others(
            others.values(), dealt[~out], dealt_y[~out], dealt[out], dealt_y[out]
        )
    held = np.concatenate([fitted.held, theirs], axis=1)
    row = np.arange(len(test)), experiment.test_y
    each = [mixture(members, stack, own, test)[row] for own in np.eye(len(members))]
    theirs = by_others(others.values(), scores, y, test, experiment.test_y)
    seen, names = np.concatenate([np.log(each).T, theirs], axis=1), [*names, *others]
    losses = {}
    for title, some in STACKS.items():
        if set(some) <= set(names):
            place = [names.index(name) for name in some]
            share = mix(held[:, place], dealt_weights)
            losses[title] = float(-log_mean(seen[:, place], share).mean())
    for name, loss in zip(names, -seen.mean(axis=0), strict=True):
        losses[f"only {name}"] = float(loss)
    ours = _plan(len(y), k)[0]
    for name in [None, *ours]:
        place = [names.index(own) for own in ours if own != name]
        title = "ours" if name is None else f"ours, without {name}"
        share = mix(held[:, place], dealt_weights)
        losses[title] = float(-log_mean(seen[:, place], share).mean())
        if name is None:
            equal = np.full(len(place), 1 / len(place))
            losses["ours, equal weights"] = float(-log_mean(seen[:, place], equal).mean())
    rows_ = scores, y, test, experiment.test_y
    for title, undo in UNDONE.items():
        losses[f"ours, {title}"] = refitted([MEMBERS[name] for name in ours], rows_, undo)
    if experiment.inputs == "probs":
        pair = (np.log(np.maximum(part, 1e-300)) for part in (raw, experiment.test_scores))
        scores, test = (part.astype(float) for part in pair)
        rows_ = scores, y, test, experiment.test_y
        losses["ours, zeros as 1e-300"] = refitted([MEMBERS[name] for name in ours], rows_)
    return losses


def refitted(
    members: list[Member],
    rows: tuple[Array, Array, Array, Array],
    undo: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> float:
    """Return the mean test loss of a stack, with something undone."""
    scores, y, test, test_y = rows
    ones = np.ones(len(y))
    with undo():
        fitted = fit_stack(members, scores, y, ones, 5)
    assert fitted.held is not None
    probs = mixture(members, fitted.stack, mix(fitted.held, fitted.folds.weights), test)[
        np.arange(len(test_y)), test_y
    ]
    return float(-np.log(np.maximum(probs, 1e-300)).mean())


def _rescaled(**values: float) -> Callable[[], AbstractContextManager[Any]]:
    real = _stack.fit_scale
    return partial(
        mock.patch.object, _stack, "fit_scale", lambda *rows: real(*rows)._replace(**values)
    )


#: What the stack chooses, undone.
UNDONE: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "without smoothing": _rescaled(smoothing=1e-12),
    "scores as they are": _rescaled(inverse=1.0),
    "one scale for all folds": partial(mock.patch.object, _stack, "SMALL", 0),
    "thirty steps": partial(mock.patch.multiple, _stack, FEW_TOLERANCE=1e-12, FOLD_SHARE=0.0),
}


def by_others(
    makers: Iterable[Callable[[], Any]], scores: Array, y: Array, test: Array, test_y: Array
) -> Array:
    """Return log probabilities (m, maps) of the test rows' labels by other maps."""
    columns = []
    for make in makers:
        model = make().set_params(classes=tuple(range(scores.shape[1])))
        with ignored(ConvergenceWarning):
            probs = model.fit(scores, y).predict_proba(test)
        columns.append(np.log(np.maximum(probs[np.arange(len(test_y)), test_y], 1e-15)))
    return np.stack(columns, axis=1)


def averages(experiment: Experiment) -> dict[str, float]:
    """Return mean test losses of averages of the regressions of two classes."""
    least = float(np.finfo(np.float32).tiny)

    def log_odds(p: Array) -> Array:
        return np.log(np.maximum(p[:, 1], least)) - np.log(np.maximum(p[:, 0], least))

    method = AveragedBeta(power=1.0)
    ones = np.ones(len(experiment.y))
    state = method._fit(Rows(log_odds(experiment.scores), experiment.y, ones), 0)
    at = np.clip(log_odds(experiment.test_scores), -FAR, FAR)
    line, columns = method._lines(state, at)
    spread = method._variances(state, columns)
    share = state["cell_weights"]

    def mean(values: Array, power: float = 1.0) -> Array:
        return np.einsum("dc,dcm->m", share**power / (share**power).sum(), values)

    def part(some: Array) -> Array:
        own = np.where(some, share, 0) ** 0.5
        return np.einsum("dc,dcm->m", own / own.sum(), sigmoid(line))

    alone, unchanged = mean(sigmoid(line), 0.5), unchanged_weight(state, 0.5)
    inverse = state["inverse"][:, None]
    best = inverse[share.sum(axis=1).argmax()]
    found = {
        "published": mean(sigmoid(line)),
        "moderated by the posterior": mean(sigmoid(line / np.sqrt(1 + np.pi * spread / 8))),
        "mean log odds": sigmoid(mean(line)),
        **{f"evidence to the power {p:g}": mean(sigmoid(line), p) for p in POWERS},
        "ours": (1 - unchanged) * alone + unchanged * sigmoid(at),
        "ours, without unchanged scores": alone,
        "ours, without curves": part(np.arange(share.shape[1]) >= LINEAR),
        "ours, one temperature": part(np.abs(np.log(inverse / best)) < 1e-9),
        "ours, the best regression alone": part(share == share.max()),
    }
    y = experiment.test_y
    return {
        name: float(-np.mean(np.log(np.clip(np.where(y == 1, p, 1 - p), 1e-15, 1))))
        for name, p in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arena", type=Path, required=True, help="folder of tables' scores")
    parser.add_argument("--networks", type=Path, required=True, help="folder of networks' scores")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--tables", type=Path, help="folder written by arena_tables.py")
    options = parser.parse_args()
    several: dict[str, Any] = {}
    tables = {} if options.tables is None else find_experiments([options.tables])
    groups = sorted({name.rpartition("-")[0] for name in tables})
    for name, path in (tables | find_experiments([options.networks])).items():
        experiment = read_experiment(name, path)
        n, k = experiment.scores.shape
        chosen = name in CHOSEN_ON
        sizes = *((100, 300, 1000) if k < 30 else (1000,)), n
        if name in tables:
            chosen, sizes = groups.index(name.rpartition("-")[0]) % 2 == 0, (n,)
        for rows in sizes:
            losses = mixtures(experiment, rows)
            several[f"{name}, {rows} rows"] = {
                "classes": k,
                "rows": rows,
                "chosen_on": chosen,
                "losses": losses,
            }
            gain = losses["first"] - losses["published"]
            print(f"{name}, {rows} rows: gains {gain / UNIT:+.1f} on the first stack", flush=True)
            keep(options.json, {"several": several})
    paths = find_experiments([options.arena])
    groups = sorted({name.rpartition("-")[0] for name in paths})
    binary = {}
    for name, path in paths.items():
        group = name.rpartition("-")[0]
        losses = averages(read_experiment(name, path))
        binary[name] = {"chosen_on": groups.index(group) % 2 == 0, "losses": losses}
    for part in (True, False):
        some = [each["losses"] for each in binary.values() if each["chosen_on"] == part]
        base = np.mean([each["published"] for each in some])
        print("chosen on" if part else "confirmed on", len(some), "experiments of two classes")
        for variant in some[0]:
            gap = np.mean([each[variant] for each in some]) - base
            print(f"  {variant}: {gap / UNIT:+.2f}")
    keep(options.json, {"several": several, "binary": binary})


def keep(path: Path | None, found: dict[str, Any]) -> None:
    if path is not None:
        provenance.write(path, found)


if __name__ == "__main__":
    main()
