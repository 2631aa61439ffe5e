"""Tables of pages of docs/ from the results kept in benchmarks/results."""

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
    """Return how the default does on the tables that its folds and steps were chosen on."""
    names = {
        "uncalibrated": "uncalibrated",
        "temperature": "temperature scaling",
        "structured_vector": "structured vector scaling",
        "structured_matrix": "structured matrix scaling",
    }
    rows = []
    for key, name in names.items():
        both = [
            wins("arena_tables", "several classes", key, m) for m in ("log_loss", "brier_score")
        ]
        difference = in_units(against("arena_tables", "several classes", key))
        rows.append([name, *both, difference])
    heads = ["wins by log loss", "wins by Brier score", "log loss difference"]
    return table(["`Auto` against", *heads], rows)


def collections() -> str:
    """Return how the default does by where fresh data come from."""
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
    found = result("real_scores")["summary"]
    better = found["lower_log_loss_than"]["uncalibrated"]
    rows = [
        [
            name,
            *(f"{found['mean'][m][key]:.4f}" for m in ("log_loss", "brier", "ece")),
            str(better.get(key, "")),
        ]
        for key, name in names.items()
    ]
    last = f"tables of {found['tables']} with a lower log loss than uncalibrated"
    return table(["method", "log loss", "Brier score", "ECE, 10 bins", last], rows)


def metrics() -> str:
    tasks = {
        "ece 1e6 x 10": ("ECE", "1e6 x 10"),
        "marginal 1e6 x 10": ("debiased class-wise ECE", "1e6 x 10"),
        "smooth 1e6": ("smooth ECE", "1e6"),
        "bootstrap 1e4 x 10, ece": ("ECE, 1,000 bootstrap replicates", "1e4 x 10"),
        "bootstrap 1e4 x 10, smooth": ("smooth ECE, 1,000 bootstrap replicates", "1e4 x 10"),
    }
    rows = []
    for task, names in tasks.items():
        timings = [row for row in result("bench_metrics")["rows"] if row["task"] == task]
        others = [row for row in timings if row["library"] != "bayescal"]
        for row in (timings[0], *sorted(others, key=lambda row: row["warm_s"])):
            library = row["library"] + ", float32" * (row["what"] == "float32")
            rows.append([*names, library, seconds(row["warm_s"])])
    return table(["metric", "rows x classes", "library", "time"], rows)


def memories() -> str:
    sizes = (10, 100, 1_000, 10_000, 50_000)
    given = [
        f"{900 * 8 * size / 1e6:,.2g} MB" if size < 1000 else f"{900 * 8 * size / 1e6:.0f} MB"
        for size in sizes
    ]
    rows = [["input, float64", *given]]
    for library, what, name in (
        ("bayescal", "Auto()", "`Auto()`"),
        ("probmetrics", "SVSCalibrator", "SVS"),
    ):
        tasks = [f"memory, {size:,} classes" for size in sizes]
        cells = [f"{memory('bench_auto_memory', task, library, what)} MB" for task in tasks]
        rows.append([name, *cells])
    return table(["classes", *(f"{size:,}" for size in sizes)], rows)


def training() -> str:
    found: dict[str, dict[str, Any]] = {}
    for row in result("bench_training")["rows"]:
        found.setdefault(row["task"], {})[row["way"]] = row
    rows = []
    for task, ways in found.items():
        plain, one, many = ways["plain loop"], ways["train"], ways.get("train, many runs")
        cells = [f"{way['images_per_s']:,.0f}" for way in (plain, one)]
        cells += [f"{many['images_per_s']:,.0f}", str(many["runs"])] if many else ["", ""]
        rows.append([task, *cells, seconds(one["compile_s"])])
    heads = ["network", "plain loop, images/s", "`train`, one run, images/s"]
    heads += ["`train`, many runs, images/s", "runs at once", "compile time"]
    return table(heads, rows)


def study() -> str:
    sizes = result("bench_study")["sizes"]
    rows = []
    for name, found in result("bench_study")["results"].items():
        ours, plain = found["bayescal"], found["plain"]
        count = ours["configurations"] * sizes["datasets"]
        hours = count * sum(plain["seconds_each"].values()) / 3600
        cells = [seconds(ours["wall_s"]), f"{ours['peak_mb'] / 1000:.1f} GB", f"{hours:.0f} hours"]
        rows.append([name, f"{count:,}", *cells])
    heads = ["study", "data sets", "bayescal", "peak memory"]
    return table([*heads, "NumPy and scikit-learn, extrapolated"], rows)


def streams() -> str:
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
        found = scale(job)
        cells = [str(found["passes"]), f"{found['rate']:.0f}", share(found["of_read"])]
        rows.append([name, two_digits(found["seconds"]), *cells, f"{found['peak_mb']:.0f}"])
    heads = ["job", "seconds", "passes", "million rows per second and pass"]
    heads += ["speed relative to reading", "peak memory, MB"]
    return table(heads, rows)


def agreement() -> str:
    libraries = ("NumPy", "array-api-strict", "JAX", "PyTorch", "ONNX runtime")
    rows = []
    for precision in ("float64", "float32"):
        keys = [f"{library}, {precision}" for library in libraries]
        worst = [
            max(each[key] for each in result("function_agreement")["calibrators"].values())
            for key in keys
        ]
        rows.append([precision, *(f"{value:.0e}".replace("e-0", "e-") for value in worst)])
    return table(
        ["precision", *libraries], [[cell.replace("0e+00", "0") for cell in row] for row in rows]
    )


def compiled() -> str:
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
        found = on_device(job)
        rows.append([name, found["size"], *(seconds(found[f"{k}_s"]) for k in ("compile", "run"))])
    return table(["job", "size", "compile time", "run time"], rows)


def gpu() -> str:
    """Tabulate the times of jobs on a GPU beside its host's CPU."""
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
            times[1] = ""  # it was measured for one step
        limit = row.get("share_of_limit")
        kind = {"bytes": "memory"}.get(row.get("limit", ""), row.get("limit"))
        part = f"{float(f'{100 * limit:.2g}'):g} % ({kind})" if limit else ""
        rows.append([name, row["size"], *times, part])
    head = ["job", "size", "GPU", "device at work", "CPU", "compile time", "share of the limit"]
    return table(head, rows)


def monitor_false() -> str:
    """Return how often the monitor raises a false alarm."""
    rows = [
        [row["probabilities"], f"{row['runs']:,}", f"{row['rows']:,}", str(row["alarms"])]
        for row in result("bench_monitor")["false"]
    ]
    return table(["calibrated probabilities", "runs", "rows in each", "runs with an alarm"], rows)


def monitor_delays() -> str:
    """Return the delay of the monitor beside that of probcal."""
    rows = []
    for row in result("bench_monitor")["delays"]:
        cells = [f"{row['slope']:g}", f"{row['offset']:g}"]
        for way in ("bayescal", "probcal, batches of 50", "difference, batches of 50"):
            sign = "+" if way.startswith("difference") else ""
            cells.append(f"{row[way]['mean']:{sign},.0f} ± {row[way]['standard_error']:,.0f}")
        rows.append(cells)
    return table(
        ["slope", "offset", "`bc.Monitor`", "probcal, batches of 50", "difference (paired)"], rows
    )


def monitor_late() -> str:
    """Return the delay of the monitor after rows without a change."""
    runs = result("bench_monitor")["late"]
    calm = sorted({row["calm"] for row in runs})
    rows = []
    for slope, offset in dict.fromkeys((row["slope"], row["offset"]) for row in runs):
        of = {row["calm"]: row for row in runs if (row["slope"], row["offset"]) == (slope, offset)}
        means = [f"{of[rows_before]['bayescal']['mean']:,.0f}" for rows_before in calm]
        rows.append([f"{slope:g}", f"{offset:g}", *means])
    heads = [f"change after {rows_before:,} rows" for rows_before in calm]
    return table(["slope", "offset", *heads], rows)


def forgetting() -> str:
    """Return the excess loss of rates of forgetting."""
    runs = result("bench_deployed")["rates"]
    rates = [name for name in runs[0] if name != "drift"]
    rows = [[row["drift"], *(f"{row[rate]['excess']:g}" for rate in rates)] for row in runs]
    return table(["drift", *(f"`{rate}`" for rate in rates)], rows)


def nba() -> str:
    """Return what learning on gains for forecasts of games."""
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
    """Return what the monitor finds in forecasts of games."""
    row = result("bench_deployed")["nba"][-1]
    return (
        f"`Monitor` raises an alarm at row {row['alarm_row']:,}, on {row['alarm_day']}, and places "
        f"the probable start at {row['start']}, the first day: a slope of {row['slope'][0]:.2f} to "
        f"{row['slope'][1]:.2f}, and an offset of {row['offset'][0]:.2f} to {row['offset'][1]:.2f}."
    )


def deployed_learning() -> str:
    """Return how methods learn on beside each other."""
    runs = result("bench_deployed")["learning"]
    rows = []
    for name in (name for name in runs[0] if name != "drift"):
        cells = [f"{row[name]['excess']:g} ± {row[name]['standard_error']:g}" for row in runs]
        label = f"`{name}`" if "partial_fit" in name else name
        rows.append([label, *cells, f"{runs[0][name]['milliseconds']:.1f}"])
    heads = [f"excess log loss (1e-4), {row['drift']}" for row in runs]
    return table(["method", *heads, "ms for a batch of 500"], rows)


def deployed_shift() -> str:
    """Return corrections for new class shares beside each other."""
    runs = result("bench_deployed")["shift"]
    settings = list(dict.fromkeys((row["share"], row["rows"]) for row in runs))
    rows = []
    for name in dict.fromkeys(row["method"] for row in runs):
        of = {(row["share"], row["rows"]): row for row in runs if row["method"] == name}
        cells = [f"{of[setting]['log_loss']:.4f}" for setting in settings]
        rows.append([name, *cells, f"{of[settings[-1]]['milliseconds']:.0f}"])
    heads = [f"log loss, share {share:g}, {n:,} rows" for share, n in settings]
    return table(["method", *heads, "ms"], rows)


def deployed_groups() -> str:
    """Return calibration by groups beside each other."""
    runs = result("bench_deployed")["groups"]
    sizes = sorted({row["rows"] for row in runs if row["rows"]})
    rows = []
    for name in dict.fromkeys(row["method"] for row in runs):
        of = {row["rows"]: row for row in runs if row["method"] == name}
        losses = [f"{of[n if n in of else None]['log_loss']:.4f}" for n in sizes]
        times = [f"{of[n]['seconds']:.2f}" if n in of else "" for n in sizes]
        rows.append([name, *losses, *times])
    heads = [f"log loss, {n:,} rows" for n in sizes] + [f"seconds, {n:,} rows" for n in sizes]
    return table(["method", *heads], rows)


def deployed_levels() -> str:
    """Return what intervals of many levels with few rows cover."""
    runs = result("bench_deployed")["levels"]
    of = {(row["levels"], row["rows"], row["deviation"]): row for row in runs}
    counts, sizes, deviations = (sorted({key[place] for key in of}) for place in range(3))
    rows = [
        [
            f"{count:,.0f}",
            f"{size:.0f}",
            *(f"{100 * of[count, size, deviation]['covered']:.0f} %" for deviation in deviations),
            *(f"{of[count, size, deviation]['found']:.2f}" for deviation in deviations),
            f"{max(of[count, size, deviation]['seconds'] for deviation in deviations):.1f}",
        ]
        for count in counts
        for size in sizes
    ]
    heads = [f"coverage, deviation {deviation:g}" for deviation in deviations]
    heads += [f"estimate of {deviation:g}" for deviation in deviations]
    return table(["levels", "rows each", *heads, "seconds"], rows)


def reproducibility() -> str:
    """Return the largest differences between variants of a run, beside the stated tolerances."""
    recorded = result("reproducibility")
    variants = {row["variant"]: row["groups"] for row in recorded["rows"]}
    rows = []
    for group, tolerances in recorded["tolerances"].items():
        same, others = (
            max(variants[name][group]["difference"] for name in names)
            for names in (("again", "one thread", "an empty cache", "a full cache"), OTHERS)
        )
        stated = ["none" if bound is None else _power(bound) for bound in tolerances]
        rows.append([group, _power(same), stated[0], _power(others), stated[1]])
    heads = ["results", "threads and caches: largest difference", "stated"]
    return table([*heads, "other versions: largest difference", "stated"], rows)


#: Environments of the runs with other versions.
OTHERS = ("oldest", "newest")


def _power(value: float) -> str:
    return "0" if value == 0 else f"{value:.0e}".replace("e-0", "e-")


def versions_of_runs() -> str:
    """Return the versions that results of several runs have."""
    names = {"numpy": "NumPy", "jax": "JAX", "scipy": "SciPy", "scikit-learn": "scikit-learn"}
    titles = {"again": "of the comparison", "oldest": "lowest", "newest": "newest"}
    found = {row["variant"]: row["versions"] for row in result("reproducibility")["rows"]}
    rows = [
        [title, found[key]["python"], *(found[key][name] for name in names)]
        for key, title in titles.items()
    ]
    return table(["environment", "Python", *names.values()], rows)


def deployed_history() -> str:
    """Return how far learning in batches is from one fit to all rows."""
    runs = result("bench_deployed")["history"]
    rows = []
    names = list(dict.fromkeys(row["calibrator"] for row in runs))
    for size in dict.fromkeys((row["rows"], row["classes"], row["batches"]) for row in runs):
        of = {
            row["calibrator"]: _power(row["difference"])
            for row in runs
            if (row["rows"], row["classes"], row["batches"]) == size
        }
        rows.append([*(f"{number:,}" for number in size), *(of.get(name, "") for name in names)])
    return table(["rows", "classes", "batches", *(f"`{name}`" for name in names)], rows)


def deployed_violated() -> str:
    """Return what guarantees become where their assumptions fail."""
    rows = [
        [row["case"], f"{100 * row['share']:.0f} %"] for row in result("bench_deployed")["violated"]
    ]
    return table(["case", "share of data sets or groups"], rows)


def shift_coverage() -> str:
    """Return how often intervals of class shares hold the true ones."""
    runs = result("bench_prior_shift")["coverage"]
    rows = []
    for k, n, m in dict.fromkeys(
        (r["classes"], r["calibration rows"], r["new rows"]) for r in runs
    ):
        of = [r for r in runs if (r["classes"], r["calibration rows"], r["new rows"]) == (k, n, m)]
        cells = [f"{100 * r['coverage']:.0f} ± {100 * r['standard error']:.0f} %" for r in of]
        rows.append([str(k), f"{n:,}", f"{m:,}", *cells])
    heads = ["classes", "calibration rows", "new rows"]
    return table([*heads, *(f"factor {ratio}" for ratio in (2, 5, 20))], rows)


def shift_networks() -> str:
    """Return corrections for new class shares of published networks."""
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
    """Return the coverage of bands, by method and number of rows, for each true curve."""
    runs = {(r["method"], r["truth"], r["rows"]): r for r in result("coverage_bands")["rows"]}
    rows = [
        [label, f"{n:,}", *(share(runs[method, truth, n]["coverage"]) for truth in truths)]
        for method, label in methods.items()
        for n in (20, 100, 1000)
    ]
    return table(["bands", "rows", *truths.values()], rows)


def coverage_binary() -> str:
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
