"""``bayescal predict``: calibrate the scores of one file with the labels of another."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import bayescal as bc
from bayescal.cli import _options
from bayescal.cli._errors import CommandError, library_call, quality, say, watched
from bayescal.cli._options import completing
from bayescal.cli.priors.syntax import parse_prior, read_prior
from bayescal.cli.tables.append import Added, append, check_form
from bayescal.cli.tables.cells import find_column, label_column, numeric_column
from bayescal.cli.tables.files import Format, check_new_columns, check_target, is_standard_output
from bayescal.cli.tables.streams import open_rows


def predict(
    scores: _options.Scores,
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
        typer.Option(
            help="File to write: the rows of --new and their probabilities, as Parquet, Feather or "
            "JSON lines if it ends in .parquet, .feather or .jsonl, else as text; - prints."
        ),
    ],
    new: Annotated[
        Path | None,
        typer.Option(help="File with the scores to predict at; by default SCORES itself."),
    ] = None,
    method: Annotated[
        str,
        completing(
            "predictive", "preds", "coeffs", "map", help="predictive, preds, coeffs or map."
        ),
    ] = "predictive",
    integrator: _options.Integrator = "montecarlo",
    num_samples: _options.NumSamples = 100_000,
    class_prior: Annotated[
        float | None,
        typer.Option(
            help="Probability of class 1 in --new; left out, it is estimated from the labels."
        ),
    ] = None,
    seed: _options.Seed = 0,
    interval: Annotated[
        float | None,
        typer.Option(help="Add columns lower and upper: a credible interval of this level."),
    ] = None,
    column: Annotated[str, typer.Option(help="Name of the new column.")] = "prob",
    sep: _options.Sep = None,
    encoding: _options.Encoding = None,
    decimal: _options.Decimal = ".",
) -> None:
    """Predict from a prior and labeled scores, without a fit: a generative model."""
    read_prior(prior)
    check_target(out)
    if interval is not None and not 0 < interval < 1:
        raise CommandError(f"--interval must lie strictly between 0 and 1, got {interval:g}")
    form = Format(sep, encoding, decimal)
    known = open_rows(scores, form)
    read = [
        (label_column(table, label, "--label"), numeric_column(table, score, "--score"))
        for table in known.tables()
    ]
    y, s = map(np.concatenate, zip(*read, strict=True))
    wanted = known if new is None else open_rows(new, form)
    check_form(wanted, out)
    find_column(wanted.head, score, "--score")
    added = [column] if interval is None else [column, "lower", "upper"]
    advice = dict.fromkeys(added, "rename it")
    advice |= {column: "rename it or choose another name with --column"}
    check_new_columns(wanted.head, advice)

    import jax

    from bayescal.data.checks import check_choice
    from bayescal.inference.result import METHODS

    start = time.perf_counter()
    # Files are kept, so compute all digits, at the speed at which a file can be read.
    with library_call(), jax.enable_x64(True):
        check_choice(method, "method", METHODS)
        posterior = bc.posterior(
            parse_prior(prior),
            (s, y),
            integrator=integrator,
            num_samples=num_samples,
            class_prior=class_prior,
            key=seed,
        )

    def compute(points: np.ndarray) -> np.ndarray:
        with library_call(), jax.enable_x64(True):
            result = posterior.predict(points[:, 0], method=method)
            ends = () if interval is None else result.interval(interval)
            columns = np.stack([np.asarray(part) for part in (result.probs, *ends)], axis=1)
        if not np.isfinite(columns).all():
            raise CommandError(
                f"the integrator {integrator!r} did not reach finite probabilities with this "
                "prior; use another --integrator or another prior"
            )
        return columns

    with watched() as watch:
        show = partial(watch, wanted.path.name)
        count = append(wanted, out, Added(added, compute, [score], "--score"), show)
    seconds = time.perf_counter() - start
    target = "standard output" if is_standard_output(out) else str(out)
    say(f"{count:,} rows written to {target}; {integrator}{quality(posterior)}, {seconds:.1f} s")
