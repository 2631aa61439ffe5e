"""``python -m benchmarks.studies NAME``: run an experiment of the papers."""

from benchmarks.studies.app import main

if __name__ == "__main__":
    main()
