"""Record the numbers of all frozen cases: ``python -m tests.frozen --write``."""

from __future__ import annotations

import argparse

# Importing it configures JAX and the XLA flags, as for all tests.
from tests.conftest import pytest_unconfigure
from tests.frozen.cases import NUMBERS, write


def main() -> None:
    """Parse the command line, and replace the recorded numbers."""
    parser = argparse.ArgumentParser(prog="python -m tests.frozen", description=__doc__)
    parser.add_argument("--write", action="store_true", required=True, help="replace the numbers")
    parser.parse_args()
    print(f"{write()} cases, {NUMBERS.stat().st_size // 1000} kB: {NUMBERS}")
    pytest_unconfigure()


if __name__ == "__main__":
    main()
