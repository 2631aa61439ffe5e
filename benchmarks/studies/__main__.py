"""``python -m benchmarks.studies NAME``: one of the papers' experiments."""

from benchmarks.studies.app import main

if __name__ == "__main__":
    main()
