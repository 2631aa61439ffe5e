"""Write the golden files of cases that have none: ``python -m tests.golden --write``.

A file that exists is never written again.
"""

from __future__ import annotations

import argparse

# Importing it configures JAX and the XLA flags, as for all tests.
from tests.conftest import pytest_unconfigure
from tests.golden.cases import FOLDER, WRITERS


def main() -> None:
    """Parse the command line, and write missing files."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("--write", action="store_true", required=True, help="write missing files")
    parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    written = {path.name.partition(".")[0] for path in FOLDER.iterdir()}
    missing = [name for name in WRITERS if name not in written]
    for name in missing:
        WRITERS[name]()
    size = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())
    print(f"{len(missing)} of {len(WRITERS)} cases written, {size // 1000} kB in {FOLDER}")
    pytest_unconfigure()


if __name__ == "__main__":
    main()
