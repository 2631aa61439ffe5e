"""``bayescal predict``: calibrate the scores of one file with the labels of another."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import typer

from bayescal.cli._errors import CommandError, library_call, quality, say
from bayescal.cli._files import (
    Format,
    append_columns,
    check_new_columns,
    check_target,
    is_standard_output,
    label_column,
    numeric_column,
    write_table,
)
from bayescal.cli._options import Encoding, Integrator, NumSamples, Scores, Seed, Sep
from bayescal.cli._prior_syntax import parse_prior
from bayescal.cli._streams import read_whole
from bayescal.posterior import posterior_predict


def predict(
    scores: Scores,
    *,
    label: Annotated[str, typer.Option(help="Column of SCORES with the labels, 0 or 1.")],
    score: Annotated[str, typer.Option(help="Column with the scores, in both files.")],
    prior: Annotated[
        str,
        typer.Option(
            help="Family and priors of its parameters, such as "
            "'gaussian:mu0=uniform(-2.5,0),mu1=1+beta(2,5),sigma=1'."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(help="File to write: the rows of --new and their probabilities; - prints."),
    ],
    new: Annotated[
        Path | None,
        typer.Option(help="File with the scores to predict at; by default SCORES itself."),
    ] = None,
    method: Annotated[str, typer.Option(help="predictive, preds, coeffs or map.")] = "predictive",
    integrator: Integrator = "montecarlo",
    num_samples: NumSamples = 100_000,
    class_prior: Annotated[
        float | None,
        typer.Option(
            help="Probability of class 1 in --new; left out, it is estimated from the labels."
        ),
    ] = None,
    seed: Seed = 0,
    interval: Annotated[
        float | None,
        typer.Option(help="Add columns lower and upper: a credible interval of this level."),
    ] = None,
    column: Annotated[str, typer.Option(help="Name of the new column.")] = "prob",
    sep: Sep = None,
    encoding: Encoding = None,
) -> None:
    """Add calibrated probabilities to the rows of a file."""
    model = parse_prior(prior)
    check_target(out)
    if interval is not None and not 0 < interval < 1:
        raise CommandError(f"--interval must lie strictly between 0 and 1, got {interval:g}")
    form = Format(sep, encoding)
    known = read_whole(scores, form)
    y = label_column(known, label, "--label")
    s = numeric_column(known, score, "--score")
    wanted = known if new is None else read_whole(new, form)
    points = numeric_column(wanted, score, "--score")
    added = [column] if interval is None else [column, "lower", "upper"]
    advice = dict.fromkeys(added, "rename it")
    check_new_columns(wanted, advice | {column: "rename it or choose another name with --column"})
    start = time.perf_counter()
    # Files are for keeping: all digits, at the speed that a file can be read.
    with library_call(), jax.enable_x64(True):
        result = posterior_predict(
            model,
            (s, y),
            points,
            method=method,
            integrator=integrator,
            num_samples=num_samples,
            class_prior=class_prior,
            key=seed,
        )
        columns = [np.asarray(result.probs)]
        if interval is not None:
            columns += [np.asarray(end) for end in result.interval(interval)]
    seconds = time.perf_counter() - start
    if not np.isfinite(columns).all():
        raise CommandError(
            f"the integrator {integrator!r} did not reach finite probabilities with this prior; "
            "use another --integrator or another prior"
        )
    rows = append_columns(wanted, np.stack(columns, axis=1))
    write_table(out, [*wanted.header, *added], rows, form.between(out))
    place = "standard output" if is_standard_output(out) else str(out)
    say(
        f"{len(points):,} rows written to {place}; {integrator}{quality(result.posterior)}, "
        f"{seconds:.1f} s"
    )
