"""``bayescal monitor``: test whether the probabilities in a growing file stay calibrated."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import numpy as np
import typer

from bayescal.cli import _options
from bayescal.cli._errors import CommandError, library_call, say, show, watched
from bayescal.cli._options import check_inputs
from bayescal.cli.tables.cells import is_number
from bayescal.cli.tables.columns import ModelColumns, parse_models, split_labels, split_model
from bayescal.cli.tables.files import (
    Format,
    check_target,
    is_standard_output,
    write_atomically,
    write_json,
)
from bayescal.cli.tables.labeled import Judged, Read
from bayescal.cli.tables.streams import open_rows
from bayescal.data.label_names import class_array, label_list

if TYPE_CHECKING:
    from bayescal.monitoring import Monitor

#: Exit code after an alarm; errors have 2.
_ALARM = 3
_PICTURES = (".png", ".svg", ".pdf")


class _LastRun(TypedDict):
    """State of the last run about reading the file, besides its settings."""

    columns: list[str]
    classes: list[str]
    rows: int
    digest: str


class _Kept(TypedDict):
    """Entries of a state file besides those of the monitor."""

    alpha: float
    command: _LastRun


def monitor_file(
    file: Annotated[
        Path,
        typer.Argument(
            help="File with probabilities and labels, in any form that evaluate takes, in the "
            "order in which the labels became known. Rows of earlier runs are skipped.",
            show_default=False,
        ),
    ],
    *,
    label: Annotated[
        str,
        typer.Option(
            help="Column of FILE with the labels, of any kind; or COLUMN,COLUMN,... with zeros and "
            "ones, if several labels may apply to a row."
        ),
    ],
    state: Annotated[
        Path,
        typer.Option(
            help="JSON file that keeps the monitor from one run to the next; created by the first. "
            "After a recalibration, start with another file."
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            help="COLUMN, the probability of the second class, or COLUMN,COLUMN,... with a column "
            "for each class or label. By default all other columns of numbers, if they can only be "
            "one model."
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="Labels separated by commas, in the order of the columns; by default sorted. "
            "Needed if the rows of the first run lack a class."
        ),
    ] = None,
    inputs: _options.Inputs = "probs",
    alpha: Annotated[
        float, typer.Option(help="Probability of a false alarm, in all runs together.")
    ] = 0.05,
    new: Annotated[
        bool,
        typer.Option(
            "--new", help="FILE has only new rows, such as those of one day. Nothing is skipped."
        ),
    ] = False,
    time: Annotated[str | None, typer.Option(help="Column of FILE with time stamps.")] = None,
    weights: _options.Weights = None,
    sep: _options.Sep = None,
    encoding: _options.Encoding = None,
    decimal: _options.Decimal = ".",
    skip_missing: _options.SkipMissing = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the evidence over time to this file: .png, .svg or .pdf."),
    ] = None,
    json_file: _options.JsonFile = None,
) -> None:
    """Test whether probabilities stay calibrated; the exit code is 3 after an alarm."""
    check_inputs(inputs, "probs", "percent", "logits")
    if not 0 < alpha < 1:
        raise CommandError(f"--alpha must lie between 0 and 1, got {alpha:g}")
    check_target(state, "--state")
    check_target(plot, "--plot")
    check_target(json_file)
    if plot is not None and plot.suffix.lower() not in _PICTURES:
        raise CommandError(f"--plot must end in .png, .svg or .pdf, got {plot}")
    kept = _read_state(state) if state.exists() else None
    # They must not change from one run to the next, and are named like their options.
    settings = {"label": label, "inputs": inputs, "weights": weights, "time": time, "new": new}
    if kept is not None:
        before = kept["command"] | {"alpha": kept["alpha"]}
        _check_settings(state, before, {**settings, "alpha": alpha})
    form = Format(sep, encoding, decimal, inputs == "percent", skip_missing)
    with watched() as watch:
        source = open_rows(file, form)
        data = Judged(source, label, weights, watch, time, "--time")
        labels = split_labels(source.head, label)
        command = None if kept is None else kept["command"]
        columns = _choose(data, model, classes, labels, command)
        with library_call():
            rows = _NewRows(file, state, kept, new, alpha, data.classes, len(labels) > 1)
            data.read(rows.add, columns, "logits" if inputs == "logits" else "probs")
        data.say_skipped()
    monitor = rows.monitor
    command = {
        **settings,
        "columns": columns.columns,
        "classes": data.classes,
        "rows": rows.count,
        "digest": rows.digest,
    }
    text = json.dumps({**monitor.to_dict(), "command": command}, allow_nan=False)
    write_atomically(state, lambda stream: stream.write(text.encode()))
    if plot is not None:
        _draw(monitor, plot)
    if json_file is not None:
        write_json(json_file, _numbers(monitor, file, rows.added))
    if json_file is None or not is_standard_output(json_file):
        show("\n".join(f"{name}: {text}" for name, text in _describe(monitor, rows.added).items()))
    for target in (plot, json_file):
        if target is not None and not is_standard_output(target):
            say(f"written: {target}")
    if monitor.alarm_:
        raise typer.Exit(_ALARM)


@dataclass
class _NewRows:
    """The monitor of a file; it takes the rows that follow those of earlier runs."""

    file: Path
    state: Path
    kept: _Kept | None
    new: bool
    alpha: float
    classes: list[str]
    several: bool
    monitor: Monitor = field(init=False)
    count: int = 0
    added: int = 0
    digest: str = ""

    def add(self, blocks: Iterable[Read], times: np.ndarray | None) -> None:
        """Add the rows of blocks, from the beginning if they are read again."""
        import bayescal as bc

        command = None if self.kept is None else self.kept["command"]
        skip = 0 if self.new or command is None else command.get("rows", 0)
        several, many = self.several, len(self.classes) > 2
        whole = all(name.isascii() and name.isdigit() for name in self.classes)
        labels = np.array([int(name) for name in self.classes] if whole else self.classes)
        if self.kept is None:
            task = "multilabel" if several else "multiclass" if many else "binary"
            self.monitor = bc.Monitor(self.alpha, task, labels.tolist())
        else:
            self.monitor = bc.Monitor.from_dict(self.kept)
        times = None if times is None else _without_text(times)
        before, content = self.monitor.n_rows_, _Content()
        self.count = 0
        for probs, y, weights in blocks:
            n = len(y)
            old = min(max(skip - self.count, 0), n)
            content.add(probs[:old], y[:old])
            if (
                command is not None
                and self.count < skip <= self.count + n
                and content.digest() != command["digest"]
            ):
                raise self._error(f"the first {skip:,} rows are not those of the earlier runs")
            stamps = None if times is None else times[self.count + old : self.count + n]
            heavy = None if weights is None else weights[old:]
            outcomes = y[old:] if several else labels[y[old:]]
            self.monitor.update(probs[old:], outcomes, heavy, stamps)
            content.add(probs[old:], y[old:])
            self.count += n
        if self.count < skip:
            raise self._error(f"has {self.count:,} rows, fewer than the {skip:,} of earlier runs")
        self.added = self.monitor.n_rows_ - before
        self.digest = content.digest()

    def _error(self, problem: str) -> CommandError:
        return CommandError(
            f"{self.file}: {problem}; pass --new for files of new rows, or another --state than "
            f"{self.state}"
        )


def _without_text(times: np.ndarray) -> np.ndarray:
    """Convert time stamps (n,) to numbers if all are, except dates such as 20261231.

    Missing ones are None.
    """
    known = [text for text in times if text is not None]
    if not all(map(is_number, known)) or all(map(_is_date, known)):
        return times
    return np.array([None if text is None else _number(text) for text in times], object)


def _is_date(text: str) -> bool:
    try:
        return datetime.fromisoformat(text) is not None
    except ValueError:
        return False


def _number(text: str) -> float:
    try:
        return int(text)  # a float would round nanoseconds
    except ValueError:
        return float(text)


class _Content:
    """A digest of probabilities and labels that does not depend on how rows are read."""

    def __init__(self) -> None:
        self._probs, self._labels = hashlib.sha256(), hashlib.sha256()

    def add(self, probs: np.ndarray, y: np.ndarray) -> None:
        """Add rows."""
        self._probs.update(np.ascontiguousarray(probs, float).tobytes())
        self._labels.update(np.ascontiguousarray(y, np.int64).tobytes())

    def digest(self) -> str:
        """Return the digest of the rows so far."""
        return self._probs.hexdigest()[:32] + self._labels.hexdigest()[:32]


def _read_state(path: Path) -> _Kept:
    """Read the state of earlier runs."""
    state: Any = None
    try:
        state = json.loads(path.read_text("utf-8"))
        known = "bayescal_monitor" in state and "rows" in state["command"]
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise CommandError(f"{path}: must be a file that bayescal monitor has written")
    return state


def _check_settings(path: Path, kept: Mapping[str, object], settings: Mapping[str, object]) -> None:
    """Raise if settings differ from those of earlier runs."""
    for name, value in settings.items():
        if kept[name] != value:
            raise CommandError(
                f"--{name} must be the same in all runs: it was {kept[name]} in {path}, "
                f"got {value}; use another --state for other settings"
            )


def _choose(
    data: Judged, model: str | None, classes: str | None, labels: list[str], kept: _LastRun | None
) -> ModelColumns:
    """Choose the columns of the model, by default those of earlier runs."""
    several = len(labels) > 1
    if several and classes is not None:
        raise CommandError("--classes must be left out with several columns of labels")
    columns = [] if model is None else [model]
    if kept is not None:
        columns, classes = [f"model={_listed(kept['columns'])}"], _listed(kept["classes"])
    if several:
        chosen = data.choose_labels(columns, labels)
    else:
        chosen = data.choose(columns, classes)[0]
    if kept is None or model is None:
        return chosen
    if several:
        given = split_model(data.source.head, model, "--model")[1]
        changed = {*given} != {*chosen.columns}
    else:
        given = parse_models(data.source.head, [model], data.classes, "--model")[0].columns
        changed = given != chosen.columns
    if changed:
        raise CommandError(
            f"--model must be the same in all runs: it was {_listed(chosen.columns)}, got {model}; "
            "use another --state for other columns"
        )
    return chosen


def _listed(names: list[str]) -> str:
    """Join names by commas, quoted if necessary."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()


def _label_names(monitor: Monitor) -> list[Hashable]:
    return [] if monitor.classes is None else label_list(class_array(monitor.classes))


def _describe(monitor: Monitor, added: int) -> dict[str, str]:
    """Describe the monitor by headings."""
    result = {
        "Rows": f"{monitor.n_rows_:,}, {added:,} of them new",
        "Log evidence": f"{monitor.log_evidence_:.2f}, at most "
        f"{monitor.max_log_evidence_:.2f}; alarm above {-np.log(monitor.alpha):.2f}",
    }
    if monitor.task == "binary":
        for name, ends in (
            ("Slope", monitor.slope_interval()),
            ("Offset", monitor.offset_interval()),
        ):
            result[name] = f"{ends[0]:.2f} to {ends[1]:.2f}"
    if monitor.task == "multilabel":
        for position, name in enumerate(_label_names(monitor)):
            slope, offset = monitor.slope_interval(position), monitor.offset_interval(position)
            result[f"Label {name}"] = (
                f"slope {slope[0]:.2f} to {slope[1]:.2f}, offset {offset[0]:.2f} to {offset[1]:.2f}"
            )
    if monitor.alarm_:
        time = "" if monitor.alarm_time_ is None else f" ({monitor.alarm_time_})"
        start = "" if monitor.start_time_ is None else f" ({monitor.start_time_})"
        result["Alarm"] = f"row {monitor.alarm_row_:,}{time}, counted from 0"
        result["Probable start"] = f"row {monitor.start_row_:,}{start}"
    result["Action"] = monitor.action_
    return result


def _numbers(monitor: Monitor, file: Path, added: int) -> dict[str, object]:
    """Return the numbers for JSON; infinite ones are None."""

    def finite(value: float) -> float | None:
        return float(value) if np.isfinite(value) else None

    def interval(read: Callable[[int], tuple[float, float]]) -> object:
        if monitor.task == "multiclass":
            return None
        if monitor.task == "binary":
            return [finite(end) for end in read(0)]
        return {
            str(name): [finite(end) for end in read(j)]
            for j, name in enumerate(_label_names(monitor))
        }

    alarm, start = monitor.alarm_, monitor.start_time_
    return {
        "file": str(file),
        "rows": monitor.n_rows_,
        "new_rows": added,
        "alpha": monitor.alpha,
        "log_evidence": finite(monitor.log_evidence_),
        "max_log_evidence": finite(monitor.max_log_evidence_),
        "alarm": alarm,
        "alarm_row": monitor.alarm_row_,
        "alarm_time": None if monitor.alarm_time_ is None else str(monitor.alarm_time_),
        "refuted_row": monitor.refuted_row_,
        "start_row": monitor.start_row_ if alarm else None,
        "start_time": str(start) if alarm and start is not None else None,
        "slope": interval(monitor.slope_interval),
        "offset": interval(monitor.offset_interval),
        "action": monitor.action_,
    }


def _draw(monitor: Monitor, path: Path) -> None:
    """Draw the course of a monitor."""
    from matplotlib.figure import Figure

    count = 1 if monitor.task == "multiclass" else 3
    figure = Figure(figsize=(6.4, 3.2 if count == 1 else 6), layout="constrained")
    axes = figure.subplots(count, 1, sharex=True, squeeze=False, height_ratios=[2, 1, 1][:count])
    monitor.plot(axes=axes[:, 0])
    form = path.suffix.lower().removeprefix(".")
    write_atomically(path, lambda stream: figure.savefig(stream, format=form, dpi=150))
