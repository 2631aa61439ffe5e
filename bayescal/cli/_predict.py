"""``bayescal predict``: calibrate the scores of one file with the labels of another."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from bayescal.cli._errors import CommandError, library_call, quality, say
from bayescal.cli._files import (
    check_target,
    is_standard_output,
    label_column,
    numeric_column,
    read_table,
    write_table,
)
from bayescal.cli._prior_syntax import parse_prior
from bayescal.posterior import posterior_predict


def predict(
    scores: Path,
    *,
    label: str,
    score: str,
    prior: str,
    new: Path,
    out: Path,
    method: str,
    integrator: str,
    num_samples: int,
    class_prior: float,
    seed: int,
    interval: float | None,
    column: str,
) -> None:
    """Read both files, predict, and write the rows of ``new`` with their probabilities."""
    model = parse_prior(prior)
    check_target(out)
    if interval is not None and not 0 < interval < 1:
        raise CommandError(f"--interval must lie strictly between 0 and 1, got {interval:g}")
    known = read_table(scores)
    y = label_column(known, label, "--label")
    s = numeric_column(known, score, "--score")
    wanted = read_table(new)
    points = numeric_column(wanted, score, "--score")
    added = [column] if interval is None else [column, "lower", "upper"]
    for name in added:
        if name in [column_name.strip() for column_name in wanted.header]:
            raise CommandError(
                f"{new}: the file has a column {name!r} already; rename it"
                + (" or choose another name with --column" if name == column else "")
            )

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

    def rows() -> Iterator[list[str]]:
        for row, *values in zip(wanted.rows, *columns, strict=True):
            yield [*row, *(repr(float(value)) for value in values)]

    write_table(out, [*wanted.header, *added], rows())
    say(
        f"{len(points):,} rows written to {_shown(out)}; {integrator}{quality(result.posterior)}, "
        f"{seconds:.1f} s"
    )


def _shown(out: Path) -> str:
    return "standard output" if is_standard_output(out) else str(out)
