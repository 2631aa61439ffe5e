"""Tables of ``python -m benchmarks.studies synthetic --figure``."""

from __future__ import annotations

from rich.console import Console

from benchmarks.studies.printing import say, show_table


def show_draws(console: Console, result: dict) -> None:
    """Print the sufficient numbers of draws, and differences from quadrature."""
    titles = {"montecarlo": "Monte Carlo", "sobol": "Sobol"}
    for name, facts in result["priors"].items():
        caption = (
            f"Expected log loss on {result['datasets']} data sets of {result['n_train']} points. "
            f"The loss of the true parameters is {facts['floor']:.5f}. Sufficient: the smallest "
            "number of draws from which on the mean loss is within "
            f"{result['tolerance']:g} of quadrature in all {result['repeats']} repeats. At most: "
            "the largest difference at this number."
        )
        headings = ["method", "quadrature"]
        for title in titles.values():
            headings += [f"{title}: sufficient", "at most", "at 10,000 or so"]
        rows = []
        for method, exact in facts["quadrature"].items():
            cells = [f"{exact:.5f}"]
            for integrator in titles:
                cells += _sufficient(facts[integrator][method], exact)
            rows.append([method, *cells])
        show_table(console, name, headings, rows, caption=caption)


def _sufficient(facts: dict, exact: float) -> list[str]:
    """Format the sufficient number of draws, its difference, and that near 10,000 draws."""
    differences = {
        size: max(abs(loss - exact) for loss in by_repeat)
        for size, by_repeat in zip(facts["sizes"], facts["loss"], strict=True)
    }
    sufficient = facts["sufficient"]
    closest = min(differences, key=lambda size: abs(size - 10_000))
    cells = (
        ["none", ""]
        if sufficient is None
        else [f"{sufficient:,}", f"{differences[sufficient]:.1e}"]
    )
    return [*cells, f"{differences[closest]:.1e}"]


def show_factors(console: Console, result: dict) -> None:
    """Print the best factors, and the excess losses of Platt's and instance-based factors."""
    caption = (
        f"Expected log loss for classes N(-m, 1) and N(m, 1), {result['datasets']} balanced data "
        "sets each. Best: the constant factor with the smallest mean loss. As good: factors within "
        "a standard error of it. Mean: the mean factor of instance-based targets. Columns with +: "
        "loss above the best in units of 0.0001, ± standard error."
    )
    headings = (
        "n",
        "m",
        "best",
        "as good",
        "Platt's",
        "mean",
        "loss, best",
        "Platt's +",
        "instance +",
    )
    rows = []
    for row in result["rows"]:
        excess = [
            f"{1e4 * (row[f'loss_{name}'] - row['loss_best']):.1f} ± "
            f"{1e4 * row[f'error_{name}']:.1f}"
            for name in ("platt", "instance")
        ]
        cells = (
            *(f"{row['n_train']}", f"{row['separation']:g}", f"{row['best']:.5f}"),
            f"{row['least']:.5f} to {row['greatest']:.5f}",
            *(f"{row['platt']:.5f}", f"{row['instance']:.5f}", f"{row['loss_best']:.5f}"),
            *excess,
        )
        rows.append(cells)
    show_table(console, "smoothing factors", headings, rows, caption=caption, words=0)
    finest = result["factors"][0]
    if any(row["best"] == finest for row in result["rows"]):
        say(console, f"{finest:g} is the least factor that was tried.")
