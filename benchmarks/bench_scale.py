"""Time fits and metrics of a Parquet file that is larger than memory, relative to reading it.

    python benchmarks/bench_scale.py [--rows N ...] [--folder DIR] [--json FILE] [--job NAME ...]

The file is written in blocks, and has probabilities of two classes (float64) and labels. Each job
runs in a fresh process on all cores; its peak memory is in addition to that of imports. ``read``
reads the file as NumPy arrays and computes nothing; ``disk`` reads its bytes. For all jobs the file
is in the cache of the operating system. ``workers`` fits with Dask, with one process and one share
of rows, and with two processes and two shares; each process has one thread.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provenance import write

STEP = 1 << 20
METRICS = "log_loss", "ece", "ece_mass", "report"
JOBS = ("disk", "read", *METRICS, "evaluate", "Beta", "Isotonic", "Auto")


def draw(block: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw the probabilities and labels of a block; predictions are wrong in both tails."""
    rng = np.random.default_rng([block, 1])
    z = rng.normal(-1, 2, count)
    truth = 1 / (1 + np.exp(-0.7 * z - 0.2 * np.sin(z)))
    return 1 / (1 + np.exp(-z)), rng.uniform(size=count) < truth


def make(path: Path, rows: int) -> None:
    """Write the file if it does not exist."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    if path.exists():
        return
    unfinished = path.with_suffix(".part")
    schema = pa.schema([("p", pa.float64()), ("y", pa.bool_())])
    with ParquetWriter(unfinished, schema) as writer:
        for block, first in enumerate(range(0, rows, STEP)):
            p, y = draw(block, min(STEP, rows - first))
            writer.write_table(pa.table({"p": p, "y": y}, schema))
    unfinished.rename(path)


def run(job: str, path: Path) -> dict[str, Any]:
    """Run a job on a file, and return its value and its number of passes."""
    import pyarrow.dataset as ds

    import bayescal as bc

    if job == "disk":
        with path.open("rb", buffering=0) as file:
            buffer = bytearray(1 << 24)
            while file.readinto(buffer):
                pass
        return {"passes": 1}
    data = ds.dataset(path)
    if job == "read":
        total = 0.0
        options = ds.ParquetFragmentScanOptions(pre_buffer=False)
        for batch in data.to_batches(batch_size=1 << 17, fragment_scan_options=options):
            p, y = (batch.column(n).to_numpy(zero_copy_only=False) for n in ("p", "y"))
            total += p[0] + y[0]
        return {"passes": 1}
    blocks = bc.Blocks.of(data, "y")
    if job == "evaluate":
        result = bc.evaluate(blocks)
        value = len(result.to_html())
    elif job in METRICS:
        options = {"ece_mass": {"binning": "equal_mass"}}.get(job, {})
        result = getattr(bc.metrics, job.partition("_mass")[0])(blocks, **options)
        value = result if isinstance(result, float) else result.intervals["model"]["ECE"].value
    else:
        value = float(getattr(bc, job)().fit(blocks).predict_proba([0.9])[0, 1])
    return {"passes": blocks.passes, "value": value}


def worker(job: str, path: Path) -> None:
    """Time a job in this process, and print the result as JSON."""
    import pyarrow.dataset  # noqa: F401

    import bayescal as bc

    assert bc.Auto  # this imports scikit-learn
    with contextlib.suppress(OSError):  # this resets the peak memory on Linux
        Path("/proc/self/clear_refs").write_text("5")
    peak_before = _peak()
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    result = run(job, path)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    result |= {"seconds": seconds, "cpu": cpu}
    print(json.dumps({**result, "peak_mb": _peak() - peak_before}))


def _peak() -> float:
    """Read the peak memory of this process in MB."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(text for text in status.read_text().splitlines() if text.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def scale(rows: int, count: int) -> dict[str, Any]:
    """Fit Beta with Dask on ``count`` processes, each with its share of rows."""
    import dask.array as da
    from dask.delayed import delayed
    from distributed import Client, LocalCluster

    import bayescal as bc

    chunks = [delayed(draw, nout=2)(block, STEP) for block in range(max(1, rows // STEP) * count)]
    columns = []
    for i, dtype in enumerate((float, bool)):
        arrays = [da.from_delayed(chunk[i], (STEP,), dtype) for chunk in chunks]
        columns.append(da.concatenate(arrays))
    cluster = LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster):
        start = time.perf_counter()
        blocks = bc.Blocks.of(*columns)
        bc.Beta().fit(blocks)
        seconds = time.perf_counter() - start
    result = {"workers": count, "rows": STEP * len(chunks), "seconds": seconds}
    return {**result, "passes": blocks.passes}


def main() -> None:
    """Run every job in a fresh process, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6, 1e7, 1e8])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--job", nargs="+", default=[*JOBS, "workers"])
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker[0], Path(options.worker[1]))
        return
    results: list[dict[str, Any]] = []
    print("job          rows    seconds   cpu s  passes  M rows/s a pass  of read  peak MB")
    for rows in (int(number) for number in options.rows):
        path = options.folder / f"scale-{rows}.parquet"
        make(path, rows)
        read = None
        for job in (name for name in options.job if name != "workers"):
            command = [sys.executable, __file__, "--worker", job, str(path)]
            process = subprocess.run(command, capture_output=True, text=True, check=True)
            row = {"job": job, "rows": rows, **json.loads(process.stdout.splitlines()[-1])}
            rate = rows * row["passes"] / row["seconds"] / 1e6
            read = rate if job == "read" else read
            row |= {"rate": rate, "of_read": None if read is None else rate / read}
            results.append(row)
            relative = "" if read is None else f"{rate / read:.2f}"
            print(
                f"{job:10s} {rows:.0e} {row['seconds']:9.2f} {row['cpu']:8.2f} "
                f"{row['passes']:6d} {rate:12.1f} {relative:>13s} {row['peak_mb']:9.0f}",
                flush=True,
            )
    if "workers" in options.job:
        for count in (1, 2):
            row = scale(int(1e7), count)
            results.append({"job": "workers", **row})
            print(f"{count} workers: {row['rows']:.1e} rows in {row['seconds']:.1f} s")
    if options.json:
        write(options.json, {"results": results}, ["pyarrow", "dask"])


if __name__ == "__main__":
    main()
