"""Write the tables of pages in docs/ from the results in benchmarks/results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.figures import (
    against,
    in_units,
    memory,
    on_device,
    result,
    scale,
    seconds,
    share,
    table,
    two_digits,
    wins,
)


def tables() -> str:
    """Compare ``Auto`` with other methods on the tables that its folds and steps were chosen on."""
    names = {
        "uncalibrated": "uncalibrated",
        "temperature": "temperature scaling",
        "structured_vector": "structured vector scaling",
        "structured_matrix": "structured matrix scaling",
    }
    rows = []
    for key, name in names.items():
        win_rates = [
            wins("arena_tables", "several classes", key, m) for m in ("log_loss", "brier_score")
        ]
        difference = in_units(against("arena_tables", "several classes", key))
        rows.append([name, *win_rates, difference])
    heads = ["wins by log loss", "wins by Brier score", "log loss difference"]
    return table(["`Auto` against", *heads], rows)


def collections() -> str:
    """Compare ``Auto`` with other methods on fresh data, by the source of the data."""
    names = {"adult": "census", "mulan": "images and genes", "columns": "columns of four tables"}
    rows = [
        [name]
        + [
            wins("arena_fresh", f"{kind}, {key}", f"probmetrics {other}")
            for kind in ("several classes", "binary")
            for other in ("svs", "sms")
        ]
        for key, name in names.items()
    ]
    heads = ["data", "multi-class: against SVS", "multi-class: against SMS"]
    heads += ["binary: against SVS", "binary: against SMS"]
    return table(heads, rows)


def real_scores() -> str:
    """Compare methods on the scores of real tables."""
    names = {
        "uncalibrated": "uncalibrated (sigmoid of the score)",
        "logistic": "logistic regression",
        "platt": "Platt's targets",
        "predictive": "bayescal `predictive`",
        "preds": "bayescal `preds`",
        "coeffs": "bayescal `coeffs`",
        "map": "bayescal `map`",
        "unequal": "bayescal `predictive`, unequal variances",
    }
    summary = result("real_scores")["summary"]
    num_better = summary["lower_log_loss_than"]["uncalibrated"]
    rows = [
        [
            name,
            *(f"{summary['mean'][m][key]:.4f}" for m in ("log_loss", "brier", "ece")),
            str(num_better.get(key, "")),
        ]
        for key, name in names.items()
    ]
    better_head = f"tables of {summary['tables']} with a lower log loss than uncalibrated"
    return table(["method", "log loss", "Brier score", "ECE, 10 bins", better_head], rows)


def metrics() -> str:
    """Compare the times of metrics with other libraries."""
    tasks = {
        "ece 1e6 x 10": ("ECE", "1e6 x 10"),
        "marginal 1e6 x 10": ("debiased class-wise ECE", "1e6 x 10"),
        "smooth 1e6": ("smooth ECE", "1e6"),
        "bootstrap 1e4 x 10, ece": ("ECE, 1,000 bootstrap replicates", "1e4 x 10"),
        "bootstrap 1e4 x 10, smooth": ("smooth ECE, 1,000 bootstrap replicates", "1e4 x 10"),
    }
    rows = []
    for task, names in tasks.items():
        timed_rows = [row for row in result("bench_metrics")["rows"] if row["task"] == task]
        others = [row for row in timed_rows if row["library"] != "bayescal"]
        for row in (timed_rows[0], *sorted(others, key=lambda row: row["warm_s"])):
            library = row["library"] + ", float32" * (row["what"] == "float32")
            rows.append([*names, library, seconds(row["warm_s"])])
    return table(["metric", "rows x classes", "library", "time"], rows)


def memories() -> str:
    """Compare the peak memory of ``Auto`` with that of SVS, by the number of classes."""
    sizes = (10, 100, 1_000, 10_000, 50_000)
    input_sizes = [
        f"{900 * 8 * size / 1e6:,.2g} MB" if size < 1000 else f"{900 * 8 * size / 1e6:.0f} MB"
        for size in sizes
    ]
    rows = [["input, float64", *input_sizes]]
    for library, what, name in (
        ("bayescal", "Auto()", "`Auto()`"),
        ("probmetrics", "SVSCalibrator", "SVS"),
    ):
        tasks = [f"memory, {size:,} classes" for size in sizes]
        cells = [f"{memory('bench_auto_memory', task, library, what)} MB" for task in tasks]
        rows.append([name, *cells])
    return table(["classes", *(f"{size:,}" for size in sizes)], rows)


def training() -> str:
    """Compare the throughput of a plain training loop, of one run and of many runs at once."""
    by_task: dict[str, dict[str, Any]] = {}
    for row in result("bench_training")["rows"]:
        by_task.setdefault(row["task"], {})[row["way"]] = row
    rows = []
    for task, methods in by_task.items():
        plain, one = methods["plain loop"], methods["train"]
        many = methods.get("train, many runs")
        cells = [f"{method['images_per_s']:,.0f}" for method in (plain, one)]
        cells += [f"{many['images_per_s']:,.0f}", str(many["runs"])] if many else ["", ""]
        rows.append([task, *cells, seconds(one["compile_s"])])
    heads = ["network", "plain loop, images/s", "`train`, one run, images/s"]
    heads += ["`train`, many runs, images/s", "runs at once", "compile time"]
    return table(heads, rows)


def study() -> str:
    """Compare the time of whole studies with NumPy and scikit-learn, extrapolated."""
    sizes = result("bench_study")["sizes"]
    rows = []
    for name, cost in result("bench_study")["results"].items():
        fast, plain = cost["bayescal"], cost["plain"]
        count = fast["configurations"] * sizes["datasets"]
        hours = count * sum(plain["seconds_each"].values()) / 3600
        cells = [seconds(fast["wall_s"]), f"{fast['peak_mb'] / 1000:.1f} GB", f"{hours:.0f} hours"]
        rows.append([name, f"{count:,}", *cells])
    heads = ["study", "data sets", "bayescal", "peak memory"]
    return table([*heads, "NumPy and scikit-learn, extrapolated"], rows)


def streams() -> str:
    """List the cost of jobs on data that are read in blocks."""
    jobs = {
        "read": "reading only",
        "log_loss": "`metrics.log_loss`",
        "ece": "`metrics.ece`",
        "ece_mass": '`metrics.ece(binning="equal_mass")`',
        "report": "`metrics.report`",
        "evaluate": "`evaluate`, with its page",
        "Auto": "`Auto`",
        "Beta": "`Beta`",
        "Isotonic": "`Isotonic`",
    }
    rows = []
    for job, name in jobs.items():
        cost = scale(job)
        cells = [str(cost["passes"]), f"{cost['rate']:.0f}", share(cost["of_read"])]
        rows.append([name, two_digits(cost["seconds"]), *cells, f"{cost['peak_mb']:.0f}"])
    heads = ["job", "seconds", "passes", "million rows per second and pass"]
    heads += ["speed relative to reading", "peak memory, MB"]
    return table(heads, rows)


def agreement() -> str:
    """List the largest differences between exported functions and ``predict_proba``, by library."""
    libraries = ("NumPy", "array-api-strict", "JAX", "PyTorch", "ONNX runtime")
    rows = []
    for precision in ("float64", "float32"):
        keys = [f"{library}, {precision}" for library in libraries]
        largest = [
            max(errors[key] for errors in result("function_agreement")["calibrators"].values())
            for key in keys
        ]
        rows.append([precision, *(f"{value:.0e}".replace("e-0", "e-") for value in largest)])
    return table(
        ["precision", *libraries], [[cell.replace("0e+00", "0") for cell in row] for row in rows]
    )


def compiled() -> str:
    """List the compile and run times of compiled jobs on a CPU."""
    jobs = {
        "posterior_predict 1": "`posterior_predict`",
        "posterior_predict 1000": "`posterior_predict`, batch",
        "sweep": "`sweep`",
        "instance_targets 10000": "`smoothing.instance_targets`",
        "Temperature f 1000000 x 10": "`as_function()` of `Temperature`",
        "StackedScaling f 1000000 x 10": "`as_function()` of `StackedScaling`",
    }
    rows = []
    for job, name in jobs.items():
        row = on_device(job)
        rows.append(
            [name, row["size"], *(seconds(row[f"{kind}_s"]) for kind in ("compile", "run"))]
        )
    return table(["job", "size", "compile time", "run time"], rows)


def gpu() -> str:
    """List the times of jobs on a GPU and on the CPU of the same machine."""
    names = {
        "posterior_predict 1": "`posterior_predict`",
        "posterior_predict 1000": "`posterior_predict`, batch",
        "sweep": "`sweep`",
        "instance_targets 10000": "`smoothing.instance_targets`",
        "instance_targets 100000": "`smoothing.instance_targets`",
        "kernel": "`Kernel.predict_proba`",
        "Temperature fit 1000000 x 10": "`Temperature.fit`",
        "Temperature fit 50000 x 1000": "`Temperature.fit`",
        "Vector fit 1000000 x 10": "`Vector.fit`",
        "ece 1000000 x 10": "`metrics.ece`",
        "Temperature f 1000000 x 10": "`as_function()` of `Temperature`",
        "f 1000000 x 100": "`as_function()` of `Temperature`",
        "Temperature f 50000 x 1000": "`as_function()` of `Temperature`",
        "StackedScaling f 1000000 x 10": "`as_function()` of `StackedScaling`",
        "ResNet-18 epoch": "ResNet-18, an epoch",
    }
    rows = []
    for job, name in names.items():
        row = on_device(job, "cuda")
        numbers = (row[f"{kind}_s"] for kind in ("run", "busy", "cpu_run", "compile"))
        times = [seconds(x) if x >= 1e-3 else f"{1e6 * x:.0f} µs" for x in numbers]
        if job == "ResNet-18 epoch":
            times[1] = ""  # measured for one step only
        limit = row.get("share_of_limit")
        kind = {"bytes": "memory"}.get(row.get("limit", ""), row.get("limit"))
        percentage = f"{float(f'{100 * limit:.2g}'):g} % ({kind})" if limit else ""
        rows.append([name, row["size"], *times, percentage])
    head = ["job", "size", "GPU", "device at work", "CPU", "compile time", "share of the limit"]
    return table(head, rows)


def monitor_false() -> str:
    """List how often the monitor raises a false alarm."""
    rows = [
        [row["probabilities"], f"{row['runs']:,}", f"{row['rows']:,}", str(row["alarms"])]
        for row in result("bench_monitor")["false"]
    ]
    return table(["calibrated probabilities", "runs", "rows in each", "runs with an alarm"], rows)


def monitor_delays() -> str:
    """Compare the delay of the alarm with that of probcal's monitor."""
    rows = []
    for row in result("bench_monitor")["delays"]:
        cells = [f"{row['slope']:g}", f"{row['offset']:g}"]
        for key in ("bayescal", "probcal, batches of 50", "difference, batches of 50"):
            sign = "+" if key.startswith("difference") else ""
            cells.append(f"{row[key]['mean']:{sign},.0f} ± {row[key]['standard_error']:,.0f}")
        rows.append(cells)
    return table(
        ["slope", "offset", "`bc.Monitor`", "probcal, batches of 50", "difference (paired)"], rows
    )


def monitor_late() -> str:
    """List the delay of the alarm after rows without a change."""
    runs = result("bench_monitor")["late"]
    calm = sorted({row["calm"] for row in runs})
    rows = []
    for slope, offset in dict.fromkeys((row["slope"], row["offset"]) for row in runs):
        by_calm = {
            row["calm"]: row for row in runs if (row["slope"], row["offset"]) == (slope, offset)
        }
        means = [f"{by_calm[rows_before]['bayescal']['mean']:,.0f}" for rows_before in calm]
        rows.append([f"{slope:g}", f"{offset:g}", *means])
    heads = [f"change after {rows_before:,} rows" for rows_before in calm]
    return table(["slope", "offset", *heads], rows)


def forgetting() -> str:
    """List the excess log loss of forgetting rates."""
    runs = result("bench_deployed")["rates"]
    rates = [name for name in runs[0] if name != "drift"]
    rows = [[row["drift"], *(f"{row[rate]['excess']:g}" for rate in rates)] for row in runs]
    return table(["drift", *(f"`{rate}`" for rate in rates)], rows)


def nba() -> str:
    """List the log loss and the gain of learning from forecasts of games."""
    rows = [
        [
            row["method"].replace('forgetting="auto"', '`forgetting="auto"`'),
            f"{row['log_loss']:.4f}",
            f"{row['gain']:.4f} ± {row['standard_error']:.4f}" if row["gain"] else "",
        ]
        for row in result("bench_deployed")["nba"]
        if "gain" in row
    ]
    return table(["`Logistic` with `partial_fit`", "log loss", "gain"], rows)


def nba_monitor() -> str:
    """Describe the alarm of the monitor for forecasts of games, in a sentence."""
    row = result("bench_deployed")["nba"][-1]
    return (
        f"`Monitor` raises an alarm at row {row['alarm_row']:,}, on {row['alarm_day']}, and places "
        f"the probable start at {row['start']}, the first day: a slope of {row['slope'][0]:.2f} to "
        f"{row['slope'][1]:.2f}, and an offset of {row['offset'][0]:.2f} to {row['offset'][1]:.2f}."
    )


def deployed_learning() -> str:
    """Compare methods that learn batch by batch."""
    runs = result("bench_deployed")["learning"]
    rows = []
    for name in (name for name in runs[0] if name != "drift"):
        cells = [f"{row[name]['excess']:g} ± {row[name]['standard_error']:g}" for row in runs]
        label = f"`{name}`" if "partial_fit" in name else name
        rows.append([label, *cells, f"{runs[0][name]['milliseconds']:.1f}"])
    heads = [f"excess log loss (1e-4), {row['drift']}" for row in runs]
    return table(["method", *heads, "ms for a batch of 500"], rows)


def deployed_shift() -> str:
    """Compare corrections for changed class shares."""
    runs = result("bench_deployed")["shift"]
    settings = list(dict.fromkeys((row["share"], row["rows"]) for row in runs))
    rows = []
    for name in dict.fromkeys(row["method"] for row in runs):
        by_setting = {(row["share"], row["rows"]): row for row in runs if row["method"] == name}
        cells = [f"{by_setting[setting]['log_loss']:.4f}" for setting in settings]
        rows.append([name, *cells, f"{by_setting[settings[-1]]['milliseconds']:.0f}"])
    heads = [f"log loss, share {share:g}, {n:,} rows" for share, n in settings]
    return table(["method", *heads, "ms"], rows)


def deployed_groups() -> str:
    """Compare methods that calibrate by groups."""
    runs = result("bench_deployed")["groups"]
    sizes = sorted({row["rows"] for row in runs if row["rows"]})
    rows = []
    for name in dict.fromkeys(row["method"] for row in runs):
        by_size = {row["rows"]: row for row in runs if row["method"] == name}
        losses = [f"{by_size[n if n in by_size else None]['log_loss']:.4f}" for n in sizes]
        times = [f"{by_size[n]['seconds']:.2f}" if n in by_size else "" for n in sizes]
        rows.append([name, *losses, *times])
    heads = [f"log loss, {n:,} rows" for n in sizes] + [f"seconds, {n:,} rows" for n in sizes]
    return table(["method", *heads], rows)


def deployed_levels() -> str:
    """List the coverage of intervals for many levels with few rows each."""
    runs = result("bench_deployed")["levels"]
    by_setting = {(row["levels"], row["rows"], row["deviation"]): row for row in runs}
    counts, sizes, deviations = (sorted({key[i] for key in by_setting}) for i in range(3))
    rows = [
        [
            f"{count:,.0f}",
            f"{size:.0f}",
            *(
                f"{100 * by_setting[count, size, deviation]['covered']:.0f} %"
                for deviation in deviations
            ),
            *(f"{by_setting[count, size, deviation]['found']:.2f}" for deviation in deviations),
            f"{max(by_setting[count, size, deviation]['seconds'] for deviation in deviations):.1f}",
        ]
        for count in counts
        for size in sizes
    ]
    heads = [f"coverage, deviation {deviation:g}" for deviation in deviations]
    heads += [f"estimate of {deviation:g}" for deviation in deviations]
    return table(["levels", "rows each", *heads, "seconds"], rows)


def reproducibility() -> str:
    """Compare the largest differences between runs with the stated tolerances."""
    recorded = result("reproducibility")
    variants = {row["variant"]: row["groups"] for row in recorded["rows"]}
    rows = []
    for group, tolerances in recorded["tolerances"].items():
        same, others = (
            max(variants[name][group]["difference"] for name in names)
            for names in (("again", "one thread", "an empty cache", "a full cache"), OTHER_VERSIONS)
        )
        stated = ["none" if bound is None else _power(bound) for bound in tolerances]
        rows.append([group, _power(same), stated[0], _power(others), stated[1]])
    heads = ["results", "threads and caches: largest difference", "stated"]
    return table([*heads, "other versions: largest difference", "stated"], rows)


#: Runs in environments with other versions of the libraries.
OTHER_VERSIONS = ("oldest", "newest")


def _power(value: float) -> str:
    """Format a number as a power of ten with one digit."""
    return "0" if value == 0 else f"{value:.0e}".replace("e-0", "e-")


def versions_of_runs() -> str:
    """List the versions of libraries in the compared runs."""
    names = {"numpy": "NumPy", "jax": "JAX", "scipy": "SciPy", "scikit-learn": "scikit-learn"}
    titles = {"again": "of the comparison", "oldest": "lowest", "newest": "newest"}
    versions = {row["variant"]: row["versions"] for row in result("reproducibility")["rows"]}
    rows = [
        [title, versions[key]["python"], *(versions[key][name] for name in names)]
        for key, title in titles.items()
    ]
    return table(["environment", "Python", *names.values()], rows)


def deployed_history() -> str:
    """List the largest differences between learning in batches and one fit to all rows."""
    runs = result("bench_deployed")["history"]
    rows = []
    names = list(dict.fromkeys(row["calibrator"] for row in runs))
    for size in dict.fromkeys((row["rows"], row["classes"], row["batches"]) for row in runs):
        gaps = {
            row["calibrator"]: _power(row["difference"])
            for row in runs
            if (row["rows"], row["classes"], row["batches"]) == size
        }
        rows.append([*(f"{number:,}" for number in size), *(gaps.get(name, "") for name in names)])
    return table(["rows", "classes", "batches", *(f"`{name}`" for name in names)], rows)


def deployed_violated() -> str:
    """List the guarantees on data that violate their assumptions."""
    rows = [
        [row["case"], f"{100 * row['share']:.0f} %"] for row in result("bench_deployed")["violated"]
    ]
    return table(["case", "share of data sets or groups"], rows)


def shift_coverage() -> str:
    """List the coverage of intervals of class shares."""
    runs = result("bench_prior_shift")["coverage"]
    rows = []
    for k, n, m in dict.fromkeys(
        (r["classes"], r["calibration rows"], r["new rows"]) for r in runs
    ):
        matching = [
            r for r in runs if (r["classes"], r["calibration rows"], r["new rows"]) == (k, n, m)
        ]
        cells = [f"{100 * r['coverage']:.0f} ± {100 * r['standard error']:.0f} %" for r in matching]
        rows.append([str(k), f"{n:,}", f"{m:,}", *cells])
    heads = ["classes", "calibration rows", "new rows"]
    return table([*heads, *(f"factor {ratio}" for ratio in (2, 5, 20))], rows)


def shift_networks() -> str:
    """Compare corrections for changed class shares of published networks."""
    names = {"none": "no correction", "EM": "EM (quapy)", "BBSE": "BBSE"}
    names |= {"PriorShift": "`PriorShift`", "known": "known shares"}
    rows = [
        [
            *(f"{row[key]:,}" for key in ("classes", "calibration rows", "new rows")),
            *(f"{row[key]:.3f}" for key in names),
            f"{100 * row['coverage']:.0f} %",
            *(seconds(row[key]) for key in ("seconds", "seconds, EM")),
        ]
        for row in result("bench_prior_shift")["networks"]
    ]
    heads = ["classes", "calibration rows", "new rows", *names.values()]
    heads += ["intervals contain the shares", "time of a fit", "time of EM"]
    return table(heads, rows)


def coverage(methods: dict[str, str], truths: dict[str, str]) -> str:
    """List the coverage of bands by method and number of rows, for each true curve."""
    runs = {(r["method"], r["truth"], r["rows"]): r for r in result("coverage_bands")["rows"]}
    rows = [
        [label, f"{n:,}", *(share(runs[method, truth, n]["coverage"]) for truth in truths)]
        for method, label in methods.items()
        for n in (20, 100, 1000)
    ]
    return table(["bands", "rows", *truths.values()], rows)


def coverage_binary() -> str:
    """List the coverage of bands for two classes."""
    names = ("Isotonic", "Spline", "Beta", "Logistic", "GaussianProcess")
    methods = {"AveragedBeta": "`AveragedBeta` (`Auto`)", **{name: f"`{name}`" for name in names}}
    truths = {
        "calibrated": "calibrated",
        "slope": "line, intercept 0.3",
        "bent": "bent",
        "wavy": "with a wave",
        "flat": "constant",
    }
    return coverage(methods, truths)


def coverage_multiclass() -> str:
    """List the coverage of bands for three classes."""
    names = ("Temperature", "EnsembleTemperature", "GaussianProcess")
    methods = {"StackedScaling, 3 classes": "`StackedScaling` (`Auto`)"}
    methods |= {f"{name}, 3 classes": f"`{name}`" for name in names}
    truths = {
        "calibrated": "calibrated",
        "temperature": "temperature 2",
        "class shifts": "temperature 2, shifted classes",
        "mixture": "mixture",
    }
    return coverage(methods, truths)


TABLES: dict[str, Callable[[], str]] = {
    f.__name__: f
    for f in (
        agreement,
        collections,
        compiled,
        coverage_binary,
        coverage_multiclass,
        deployed_groups,
        deployed_history,
        deployed_learning,
        deployed_levels,
        deployed_shift,
        deployed_violated,
        forgetting,
        gpu,
        memories,
        metrics,
        monitor_delays,
        monitor_false,
        monitor_late,
        nba,
        nba_monitor,
        real_scores,
        reproducibility,
        shift_coverage,
        shift_networks,
        streams,
        study,
        tables,
        training,
        versions_of_runs,
    )
}
