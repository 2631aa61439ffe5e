"""Data beyond memory: fits and metrics of a Parquet file, beside reading it.

    python benchmarks/bench_scale.py [--rows N ...] [--folder DIR] [--json FILE] [--job NAME ...]

The file is made in blocks: probabilities of two classes (float64) and labels. Each job runs in a
process of its own, on all cores; the peak of memory is that above what imports take. ``read`` goes
through the file as NumPy's arrays and does nothing, ``disk`` reads its bytes: the file is in the
system's cache for both, as for all others. ``workers`` fits with Dask on one and on two processes
of one thread, on one and on two shares of the rows.
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
    """Return probabilities and labels of a block of rows, of which both tails are wrong."""
    rng = np.random.default_rng([block, 1])
    z = rng.normal(-1, 2, count)
    truth = 1 / (1 + np.exp(-0.7 * z - 0.2 * np.sin(z)))
    return 1 / (1 + np.exp(-z)), rng.uniform(size=count) < truth


def make(path: Path, rows: int) -> None:
    """Write the file, if it is not there."""
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
    """Do a job on a file, and return a number that says what it found, and passes."""
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
        found = bc.evaluate(blocks)
        value = len(found.to_html())
    elif job in METRICS:
        options = {"ece_mass": {"binning": "equal_mass"}}.get(job, {})
        found = getattr(bc.metrics, job.partition("_mass")[0])(blocks, **options)
        value = found if isinstance(found, float) else found.intervals["model"]["ECE"].value
    else:
        value = float(getattr(bc, job)().fit(blocks).predict_proba([0.9])[0, 1])
    return {"passes": blocks.passes, "value": value}


def worker(job: str, path: Path) -> None:
    """Time a job, and print what was found as JSON."""
    import pyarrow.dataset  # noqa: F401

    import bayescal as bc

    assert bc.Auto  # imports scikit-learn
    with contextlib.suppress(OSError):  # on Linux the peak so far is forgotten
        Path("/proc/self/clear_refs").write_text("5")
    held = _peak()
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    found = run(job, path)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found |= {"seconds": seconds, "cpu": cpu}
    print(json.dumps({**found, "peak_mb": _peak() - held}))


def _peak() -> float:
    status = Path("/proc/self/status")
    if status.exists():
        line = next(own for own in status.read_text().splitlines() if own.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def scale(rows: int, count: int) -> dict[str, Any]:
    """Fit Beta with Dask on so many processes, each with its share of rows."""
    import dask.array as da
    from dask.delayed import delayed
    from distributed import Client, LocalCluster

    import bayescal as bc

    chunks = [delayed(draw, nout=2)(block, STEP) for block in range(max(1, rows // STEP) * count)]
    columns = []
    for place, dtype in enumerate((float, bool)):
        own = [da.from_delayed(chunk[place], (STEP,), dtype) for chunk in chunks]
        columns.append(da.concatenate(own))
    cluster = LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster):
        start = time.perf_counter()
        blocks = bc.Blocks.of(*columns)
        bc.Beta().fit(blocks)
        seconds = time.perf_counter() - start
    found = {"workers": count, "rows": STEP * len(chunks), "seconds": seconds}
    return {**found, "passes": blocks.passes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6, 1e7, 1e8])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--job", nargs="+", default=[*JOBS, "workers"])
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker(given.worker[0], Path(given.worker[1]))
        return
    results: list[dict[str, Any]] = []
    print("job          rows    seconds   cpu s  passes  M rows/s a pass  of read  peak MB")
    for rows in (int(own) for own in given.rows):
        path = given.folder / f"scale-{rows}.parquet"
        make(path, rows)
        read = None
        for job in (own for own in given.job if own != "workers"):
            call = [sys.executable, __file__, "--worker", job, str(path)]
            done = subprocess.run(call, capture_output=True, text=True, check=True)
            found = {"job": job, "rows": rows, **json.loads(done.stdout.splitlines()[-1])}
            rate = rows * found["passes"] / found["seconds"] / 1e6
            read = rate if job == "read" else read
            found |= {"rate": rate, "of_read": None if read is None else rate / read}
            results.append(found)
            share = "" if read is None else f"{rate / read:.2f}"
            print(
                f"{job:10s} {rows:.0e} {found['seconds']:9.2f} {found['cpu']:8.2f} "
                f"{found['passes']:6d} {rate:12.1f} {share:>13s} {found['peak_mb']:9.0f}",
                flush=True,
            )
    if "workers" in given.job:
        for count in (1, 2):
            found = scale(int(1e7), count)
            results.append({"job": "workers", **found})
            print(f"{count} workers: {found['rows']:.1e} rows in {found['seconds']:.1f} s")
    if given.json:
        write(given.json, {"results": results}, ["pyarrow", "dask"])


if __name__ == "__main__":
    main()
