"""Tables of ``python -m benchmarks.studies synthetic --figure``."""

from __future__ import annotations

from rich.console import Console

from benchmarks.studies.printing import say, show_table


def show_draws(console: Console, found: dict) -> None:
    """Print how many draws suffice."""
    titles = {"montecarlo": "Monte Carlo", "sobol": "Sobol"}
    for name, facts in found["priors"].items():
        caption = (
            f"{found['datasets']} data sets of {found['n_train']} points, expected log loss; floor "
            f"{facts['floor']:.5f}, the loss of the true parameters. Sufficient: the least number "
            f"of draws from which on the mean loss is within {found['tolerance']:g} of "
            f"quadrature's in {found['repeats']} repeats. At most: the greatest difference there."
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


def _sufficient(own: dict, exact: float) -> list[str]:
    gaps = {
        size: max(abs(loss - exact) for loss in some)
        for size, some in zip(own["sizes"], own["loss"], strict=True)
    }
    enough = own["sufficient"]
    near = min(gaps, key=lambda size: abs(size - 10_000))
    first = ["none", ""] if enough is None else [f"{enough:,}", f"{gaps[enough]:.1e}"]
    return [*first, f"{gaps[near]:.1e}"]


def show_factors(console: Console, found: dict) -> None:
    """Print the best factors, and what others lose against them."""
    caption = (
        f"Classes N(-m, 1) and N(m, 1), {found['datasets']} balanced data sets each, expected log "
        "loss. Best: the constant factor with the least mean loss; as good: those within a "
        "standard error of it. Mean: what instance-based targets are moved by. Loss above the "
        "best in units of 0.0001, and its standard error."
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
    for row in found["rows"]:
        more = [
            f"{1e4 * (row[f'loss_{name}'] - row['loss_best']):.1f} ± "
            f"{1e4 * row[f'error_{name}']:.1f}"
            for name in ("platt", "instance")
        ]
        cells = (
            *(f"{row['n_train']}", f"{row['separation']:g}", f"{row['best']:.5f}"),
            f"{row['least']:.5f} to {row['greatest']:.5f}",
            *(f"{row['platt']:.5f}", f"{row['instance']:.5f}", f"{row['loss_best']:.5f}"),
            *more,
        )
        rows.append(cells)
    show_table(console, "smoothing factors", headings, rows, caption=caption, words=0)
    finest = found["factors"][0]
    if any(row["best"] == finest for row in found["rows"]):
        say(console, f"{finest:g} is the least factor that was tried.")
