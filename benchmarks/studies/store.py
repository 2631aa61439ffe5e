"""Files of studies' results: written atomically, and marked with the question they answer."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bayescal._core.files import write_atomically
from benchmarks.provenance import provenance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")
#: Called with the next step, the number of finished steps and the total number.
Progress = Callable[[str, int, int], None]
_SUM = "sha256"


class Results:
    """The folder of a study's results: finished parts, tables, and a summary.

    Parameters
    ----------
    study : str
        Name of the study; parts are marked with it.
    out : path
        The folder, created if it is missing.
    about : mapping of str to str, optional
        Versions and similar facts that results depend on.
    """

    def __init__(self, study: str, out: str | Path, about: Mapping[str, str] | None = None) -> None:
        self.folder, self.about = Path(out), dict(about or {})
        self._study = study
        self.folder.mkdir(parents=True, exist_ok=True)

    def part(self, name: str, question: Mapping[str, Any], complete: Callable[[Any], Any]) -> Any:
        """Read the answer to a question from its file, and complete it if necessary.

        ``complete`` takes the stored answer and returns the complete one: the same object if
        nothing is missing. The stored answer is None if there is no file, or the file is broken or
        answers a different question.
        """
        path = self.folder / "parts" / f"{name}.json"
        marked_question = {
            "study": f"bayescal study {self._study}",
            **question,
            "about": self.about,
        }
        stored = _recall(path, marked_question)
        answer = complete(stored)
        if answer is not stored:
            path.parent.mkdir(exist_ok=True)
            content = {"question": marked_question, "answer": answer}
            write_json(path, {**content, _SUM: _checksum(content)})
        return answer

    def table(self, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write ``NAME.csv``, with all digits of the numbers."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
        _write_text(self.folder / f"{name}.csv", text.getvalue())

    def summary(self, name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Write ``NAME.json``, with its provenance, and return its content."""
        content = {"provenance": provenance(), "about": self.about, **facts}
        write_json(self.folder / f"{name}.json", content)
        return content


def counted(
    steps: Iterable[T], describe: Callable[[T], str], progress: Progress | None
) -> Iterator[T]:
    """Yield the steps; report each step before it starts, and the end of the last."""
    all_steps = list(steps)
    for done, step in enumerate(all_steps):
        if progress:
            progress(describe(step), done, len(all_steps))
        yield step
    if progress:
        progress("", len(all_steps), len(all_steps))


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically."""
    _write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def write_figure(path: Path, figure: Figure) -> None:
    """Write a figure as SVG atomically; text stays text, and equal figures give equal files."""
    import matplotlib as mpl

    options: Any = {"svg.fonttype": "none", "svg.hashsalt": "bayescal"}
    text = io.StringIO()
    with mpl.rc_context(options):
        figure.savefig(text, format="svg", metadata={"Date": None})
    _write_text(path, text.getvalue())


def _write_text(path: Path, text: str) -> None:
    with write_atomically(path) as partial:
        partial.write_bytes(text.encode())


def _recall(path: Path, question: Mapping[str, Any]) -> Any:
    """Read a stored answer; None if it is missing, broken or answers a different question."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        is_intact = content.pop(_SUM) == _checksum(content)
        return content["answer"] if is_intact and content["question"] == question else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _checksum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
