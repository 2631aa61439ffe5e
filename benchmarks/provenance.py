"""Record where a result comes from: commit, versions, class of machine and command."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
#: Fields of the provenance of a result file; ``not_recorded`` lists those that an old file lacks.
FIELDS = ("commit", "versions", "machine", "command")
LIBRARIES = ("jax", "jaxlib", "numpy", "scipy", "scikit-learn", "numpyro")


def versions(names: Sequence[str] = ()) -> dict[str, str]:
    """Collect the versions of Python, bayescal and the libraries that are installed."""
    import bayescal  # a local import, because benchmarks time the import of the package

    installed = {"bayescal": bayescal.__version__, "python": platform.python_version()}
    for name in (*LIBRARIES, *names):
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


def commit() -> str | None:
    """Read the commit of the working tree from Git, with "+" if there are uncommitted changes."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode:
        return None
    status = ["status", "--porcelain", "--", "bayescal", "benchmarks/*.py"]
    changed = subprocess.run([*git, *status], capture_output=True, text=True, check=False).stdout
    return head.stdout.strip() + "+" * bool(changed)


def machine() -> str:
    """Describe the class of the machine: its accelerators, architecture and cores."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count()
    device = ""
    if "jax" in sys.modules:
        import jax

        devices = jax.devices()
        if devices[0].platform != "cpu":
            device = f"{len(devices)} x {devices[0].device_kind}, "
    return f"{device}{platform.machine()}, {cores} cores, {platform.system()}"


def command() -> str:
    """Reconstruct the command of this process, with paths relative to the repository."""
    main = sys.modules["__main__"]
    package = getattr(main, "__spec__", None)
    name = (package.name if package else sys.argv[0]).removesuffix(".__main__")
    start = ["-m", name] if package else [_relative(name)]
    return shlex.join(["python", *start, *map(_relative, sys.argv[1:])])


def _relative(text: str) -> str:
    """Make a path inside the repository relative to it."""
    return os.path.relpath(text, ROOT) if Path(text).is_relative_to(ROOT) else text


def provenance(libraries: Sequence[str] = ()) -> dict[str, Any]:
    """Collect the provenance of the results of this process."""
    return {
        "commit": commit(),
        "versions": versions(libraries),
        "machine": machine(),
        "command": command(),
    }


def read(path: Path) -> dict[str, Any]:
    """Read a result file to extend it, or return no results if it does not exist."""
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def write(path: Path, results: dict[str, Any], libraries: Sequence[str] = ()) -> None:
    """Write results with their provenance.

    If ``results`` contains a provenance, because some results were read from an earlier file, the
    new provenance lists it under ``earlier``.
    """
    new = provenance(libraries)
    old = results.get("provenance")
    if old:
        runs = [*old.get("earlier", []), {name: old[name] for name in old if name != "earlier"}]
        new["earlier"] = [run for run in runs if run != new]
    content = {"provenance": new, **{k: v for k, v in results.items() if k != "provenance"}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def problems(results: Any, current: str) -> list[str]:
    """List what the provenance of a result lacks, and whether the result is too old.

    A result is too old if its version of bayescal is more than one minor version behind.
    """
    origin = results.get("provenance") if isinstance(results, dict) else None
    if not isinstance(origin, dict):
        return ["no provenance"]
    messages = []
    for name in FIELDS:
        if not origin.get(name) and name not in origin.get("not_recorded", []):
            messages.append(f"no {name}")
    for run in (origin, *origin.get("earlier", [])):
        measured = (run.get("versions") or {}).get("bayescal")
        if measured is None:
            messages.append("no version of bayescal")
        elif _minor(current) - _minor(measured) > 1:
            messages.append(f"measured with {measured}, more than a minor version before {current}")
    return messages


def _minor(text: str) -> int:
    """Number the minor versions; a new major version makes all older results too old."""
    major, minor = (int(part) for part in text.split(".")[:2])
    return 1_000_000 * major + minor
