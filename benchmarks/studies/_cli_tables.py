"""Tables of ``python -m benchmarks.studies`` on multi-class maps and on multi-label data."""

from __future__ import annotations

import math

from rich.console import Console

from benchmarks.studies.printing import say, show_table

#: Columns of tables: measure, heading, factor and decimals.
_CNN_COLUMNS = (
    ("accuracy", "acc.", 1, 4),
    ("ece", "ECE %", 100, 2),
    ("ece_mass", "mass", 100, 2),
    ("ece_25", "25", 100, 2),
    ("class_wise_ece", "cw %", 100, 2),
    ("class_wise_ece_mass", "mass", 100, 2),
    ("brier_score", "Brier", 1, 4),
    ("log_loss", "loss", 1, 4),
    ("loss_gap", "gap", 1, 4),
)
_SIMPLEX_COLUMNS = (
    ("distance_l1", "L1", 1, 4),
    ("distance_l2", "L2", 1, 4),
    ("confidence_error", "conf.", 1, 4),
    ("log_loss", "loss", 1, 4),
    ("brier_score", "Brier", 1, 4),
    ("accuracy", "acc.", 1, 4),
    ("ece", "ECE %", 100, 2),
    ("loss_gap", "gap", 1, 4),
)
_SYNTHETIC_COLUMNS = (
    ("confidence_error", "confidence"),
    ("class_wise_error", "class-wise"),
    ("brier_score", "Brier"),
    ("log_loss", "log loss"),
    ("accuracy", "accuracy"),
    ("loss_gap", "gap"),
)
_SPLINE_COLUMNS = (
    ("log_loss", "log loss"),
    ("accuracy", "accuracy"),
    ("brier_score", "Brier"),
    ("class_wise_ece", "class-wise ECE"),
)
_LABEL_COLUMNS = (
    ("ece_total", "ECE total"),
    ("ece_weighted", "ECE weighted"),
    ("hamming_loss", "Hamming loss"),
    ("log_loss", "log loss"),
    ("brier_score", "Brier"),
)


def show_network(console: Console, name: str, facts: dict, result: dict) -> None:
    """Print the metrics of all maps, then our figures next to the published ones."""
    rows = facts["rows"]
    title = f"{name}: {facts['classes']} classes"
    caption = (
        f"{rows['calibration']:,} rows to calibrate ({facts['split']}), {rows['test']:,} to test. "
        "Errors in percent: ECE of the confidence in 15 bins of equal width, in 15 bins of equal "
        "mass (mass), and in 25 bins of equal width (25); class-wise ECE (cw) in 15 bins of equal "
        "width and of equal mass. *: the fit did not converge."
    )
    if result["seeds"] > 1:
        caption += f" Random maps: means over {result['seeds']} seeds."
    _show_maps(console, (title, caption), _CNN_COLUMNS, facts["maps"])
    _show_spread(console, name, facts["maps"])
    figures = facts["published"]["figures"]
    for source in dict.fromkeys(figure["source"] for figure in figures):
        matching = [figure for figure in figures if figure["source"] == source]
        columns = [c for c in _CNN_COLUMNS if any(f["metric"] == c[0] for f in matching)]
        title = f"{name}: ours / {source}"
        rows = []
        for method in dict.fromkeys(figure["method"] for figure in matching):
            by_metric = {f["metric"]: f for f in matching if f["method"] == method}
            cells = [_pair(by_metric.get(key), factor) for key, _, factor, _ in columns]
            rows.append((_label(method), *cells))
        show_table(console, title, ("map", *(heading for _, heading, _, _ in columns)), rows)
    for line in facts["published"]["remarks"]:
        say(console, line)


def show_splines(console: Console, name: str, facts: dict) -> None:
    """Print the measures of all methods on a network, and the tests of the claims on its rows."""
    rows = []
    for method, values in facts["methods"].items():
        cells = [f"{values[key]:.4f}" for key, _ in _SPLINE_COLUMNS]
        rows.append(
            (method, *cells, "" if values["seconds"] is None else f"{values['seconds']:.1f}")
        )
    headings = ("method", *(heading for _, heading in _SPLINE_COLUMNS), "s")
    sizes = facts["rows"]
    caption = (
        f"{sizes['calibration']:,} rows to calibrate, {sizes['test']:,} to test: {facts['split']}."
    )
    show_table(console, f"{name}: {facts['classes']} classes", headings, rows, caption=caption)
    claims = [
        (claim, values["verdict"], f"{values['difference']:+.4f} ± {values['error']:.4f}")
        for claim, values in facts["claims"].items()
    ]
    show_table(console, "claims", ("claim", "verdict", "difference"), claims, words=2)


def _show_spread(console: Console, name: str, maps: dict) -> None:
    """Print the range of the metrics of random maps over seeds, if there are several seeds."""
    random = {method: facts["spread"] for method, facts in maps.items() if "spread" in facts}
    if not random:
        return
    columns = [c for c in _CNN_COLUMNS if c[0] in ("ece", "ece_mass", "log_loss", "loss_gap")]
    rows = []
    for method, spread in random.items():
        cells = [
            " to ".join(f"{end * factor:.{digits}f}" for end in spread[key])
            for key, _, factor, digits in columns
        ]
        rows.append((_label(method), *cells))
    headings = ("map", *(heading for _, heading, _, _ in columns))
    show_table(console, f"{name}: range over seeds", headings, rows)


def _pair(figure: dict | None, factor: int) -> str:
    """Format our figure and the published one, with the digits of the published one."""
    if figure is None:
        return ""
    digits = min(4, round(-math.log10(figure["unit"] * factor)))
    return f"{figure['ours'] * factor:.{digits}f}/{figure['value'] * factor:.{digits}f}"


def show_simplex(console: Console, result: dict) -> None:
    """Print distances of maps from the truth, and published figures for a different truth."""
    rows = result["rows"]
    caption = (
        f"Means over calibration sets ({result['datasets']}) of {rows['calibration']:,} rows; "
        f"{rows['test']:,} test rows. Distances from the truth: L1 and L2 over classes, and the "
        "distance for the most probable class (conf.). Scores are expected values given the truth; "
        "ECE uses labels. *: the fit did not converge."
    )
    title = "three classes, true probabilities known"
    _show_maps(console, (title, caption), _SIMPLEX_COLUMNS, result["maps"])
    title = "published, for a different true map (K. Valk, 2022, table 1)"
    keys, headings = zip(*_SYNTHETIC_COLUMNS, strict=True)
    figures = [
        (m, *(f"{values[key]:.3f}" for key in keys)) for m, values in result["published"].items()
    ]
    show_table(console, title, ("map", *headings), figures)


def _label(method: str) -> str:
    """Return the name of a map, with its published abbreviation if there is one."""
    from benchmarks.studies._calibrators import ABBREVIATIONS

    return f"{method} ({ABBREVIATIONS[method]})" if method in ABBREVIATIONS else method


def _show_maps(console: Console, texts: tuple[str, str], columns: tuple, maps: dict) -> None:
    """Print a row for each map."""
    headings = ("map", *(heading for _, heading, _, _ in columns), "fit s", "pred s")
    rows = []
    for name, facts in maps.items():
        mark = "" if facts["status"] == "converged" else " *"
        cells = [f"{facts[key] * factor:.{digits}f}" for key, _, factor, digits in columns]
        seconds = [f"{facts[key]:.2f}" for key in ("fit_seconds", "predict_seconds")]
        rows.append((_label(name) + mark, *cells, *seconds))
    show_table(console, texts[0], headings, rows, caption=texts[1])


def show_labels(console: Console, name: str, facts: dict, result: dict) -> None:
    """Print means and standard deviations over splits."""
    rows = facts["rows"]
    caption = (
        f"Means and standard deviations over {result['splits']} splits: {rows['calibration']:,} "
        f"rows to calibrate, {rows['test']:,} to test. ECE in {result['bins']} bins of equal "
        "width: the sum over labels, and the sum weighted by their frequencies."
    )
    title = f"{name}: {rows['labels']} labels"
    table_rows = []
    for method, values in facts["methods"].items():
        cells = [
            f"{values['mean'][key]:.4f} ± {values['deviation'][key]:.4f}"
            for key, _ in _LABEL_COLUMNS
        ]
        table_rows.append((method, *cells))
    headings = ("method", *(heading for _, heading in _LABEL_COLUMNS))
    show_table(console, title, headings, table_rows, caption=caption)
    counts = {m: values["without_optimum"] for m, values in facts["methods"].items()}
    listed = ", ".join(f"{method} {count}" for method, count in counts.items() if count)
    if listed:
        total = result["splits"] * rows["labels"]
        say(console, f"Fits without finite optimum, of {total}: {listed}.")


def say_missing(console: Console, result: dict) -> None:
    """Print the variants of maps whose calibrator is not registered."""
    if result["not_registered"]:
        say(console, f"not there: {', '.join(result['not_registered'])}")
