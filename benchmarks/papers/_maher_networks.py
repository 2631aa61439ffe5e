"""Table 12 and figures 28 and 29 of M. Maher (2020): label smoothing in networks."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Any

from benchmarks.figures import table
from benchmarks.papers._common import Finding, read
from benchmarks.studies.published_networks import FIGURES, MEASURES, ROWS

PICTURE = "maher-figure-29.svg"
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "fashion_mnist": "Fashion-MNIST"}
SMOOTHING = {"none": "none", "constant": "constant", "instance": "instance-based"}
#: Number of trainings with equal targets from which the published code chooses, per factor.
_REPEATS = 4
_CLASSES = 10
_HEADS = {
    "accuracy": "accuracy, %",
    "log_loss": "log loss",
    "ece": "ECE",
    "student_accuracy": "student, %",
    "student_log_loss": "its log loss",
}
# Factor and decimals of the measures in our table.
_OURS = {
    "accuracy": (100, 1),
    "log_loss": (1, 3),
    "ece": (1, 4),
    "student_accuracy": (100, 1),
    "student_log_loss": (1, 3),
    "structure": (1, 2),
}


def study() -> dict[str, Any]:
    """Read the results of the study of networks on digits."""
    return read("networks_digits")


def text() -> str:
    """Write the part of the page on networks."""
    result = study()
    images = result["images"]
    return f"""\
## Networks (section 7.3)

### Table 12

As published; figures 28 and 29 are of its first network. Images of CIFAR and Fashion-MNIST are not
among the data that these pages are made from, and trainings of these networks need a GPU. The
commands that put ours beside them:

```sh
python -m benchmarks.studies networks --data cifar10 --network resnet18 --folder DIR
python -m benchmarks.studies networks --data cifar10 --network inception --folder DIR
python -m benchmarks.studies networks --data cifar100 --network resnet50 --folder DIR
python -m benchmarks.studies networks --data fashion_mnist --network densenet --folder DIR
```

{_published()}

Which networks these are:

- ResNet18 is `resnet18`, of 11.2 million parameters.
- ResNet50, as the thesis has it, is `resnet50` with bottlenecks, of 23.7 million parameters with
  100 classes. In its published code the network of that name is made of 3, 4, 6 and 3 blocks of two
  3x3 convolutions, which is ResNet-34, here `resnet34` (21.3 million).
- DenseNet has four blocks of four 3x3 layers with a growth of 32 in the published code, on images
  enlarged to 96x96; `densenet` is the one of 100 layers with bottlenecks and a growth of 12.
- InceptionV4 is missing: `inception` is a small network of its kind. Two versions of the table are
  published; the picture beside the code has 85.63, 0.452 and 0.039 in the last row of this network.

### What the published code does

- The scale of logits u, chosen from 1, 10, 100 and 1000, cancels out: targets depend on ratios of
  u f − q, and q is there the least of u f, where that is negative. The four trainings for each
  smoothing factor have equal targets and differ by chance.
  [How u and q relate to `offset`](../train-networks.md).
- The epoch, the smoothing factor and u are chosen by the log loss on the images that also test: the
  scripts take those for validation. So the figures of instance-based smoothing are those of the
  best of 12 networks on the test images, of constant smoothing the best of 3, without smoothing of
  one. Here a part of the training images chooses.

How much that choice is worth, on digits: {_selection(result)}

### On digits

Handwritten digits of 8x8 pixels, {images["train"]} to train on, {images["validation"]} to
validate, {images["test"]} to test; a convolutional network of 28,000 parameters, {result["seeds"]}
seeds; means ± half of 95 % intervals. Student: a smaller network taught by it. Structure: how well
the classes' similarities agree with those of other networks without smoothing.

{_digits(result)}

The claims of the thesis, by differences over seeds; one *holds* if the interval lacks zero:

{_claims(result)}

{_weak(result)}

Temperature scaling on {images["validation"]} images that are nearly all right makes log losses
worse.

### The structure of classes (figure 29)

![Logits of three classes of digits, t-SNE]({PICTURE})

Logits of the two classes of digits that are most alike and of the one least like both, on test
images, in two dimensions by t-SNE (one of three seeds, ε and offset by validation): as figure 29,
which shows dogs, cats and ships. Distances between clusters mean little in t-SNE, and pictures
differ by seed; the column "structure" above is the measure, over seeds.
"""


def _weak(result: dict[str, Any]) -> str:
    """Compare instance-based smoothing with the constant smoothing that it nearly equals."""
    chosen, weak_study = _unscaled(result)["instance"], read("networks_digits_weak")
    constant, none = (_unscaled(weak_study)[method] for method in ("constant", "none"))
    weak_factor = chosen["setting"]["smoothing"] / (_CLASSES - 1)
    assert abs(constant["setting"]["smoothing"] / weak_factor - 1) < 1e-9

    def shown(row: dict[str, Any]) -> str:
        loss, structure = (
            _interval(row["measures"][key], *_OURS[key]) for key in ("log_loss", "structure")
        )
        return f"a log loss of {loss} and a structure of {structure}"

    return (
        f"Validation chose an offset of {chosen['setting']['offset']:g}. With one that large all "
        "other classes get nearly the same: it is constant smoothing by nearly ε / (k - 1) = "
        f"{weak_factor:.4f}, which the grid of constant factors lacks. Networks trained anew from "
        f"the same {weak_study['seeds']} seeds with that constant factor have {shown(constant)} "
        f"(without smoothing {shown(none)}); those of instance-based smoothing have "
        f"{shown(chosen)}. What is gained here is that of little smoothing, not of the similarity "
        "of classes."
    )


def _unscaled(result: dict[str, Any]) -> dict[str, Any]:
    """Select the rows before temperature scaling, by method."""
    return {row["method"]: row for row in result["table"] if not row["scaled"]}


def _published() -> str:
    """Arrange the figures of table 12 as a table."""
    rows = [
        [
            f"{DATA[data]}, {network}",
            SMOOTHING[method],
            "yes" if scaled else "no",
            *(f"{value:g}" for value in values),
        ]
        for (data, network), by_row in FIGURES.items()
        for (method, scaled), values in zip(ROWS, by_row, strict=True)
    ]
    heads = ["", "smoothing", "temperature scaled", *(_HEADS[name] for name in MEASURES)]
    return table(heads, rows)


def _digits(result: dict[str, Any]) -> str:
    """Arrange our results on digits as a table."""
    rows = []
    for row in result["table"]:
        setting = ", ".join(f"{value:g}" for value in row["setting"].values())
        name = SMOOTHING[row["method"]] + (f" ({setting})" if setting else "")
        cells = [
            _interval(row["measures"][key], *number_format) for key, number_format in _OURS.items()
        ]
        rows.append([name, "yes" if row["scaled"] else "no", *cells])
    heads = ["smoothing (ε, offset)", "temperature scaled", *_HEADS.values(), "structure"]
    return table(heads, rows)


def _interval(facts: dict[str, Any], factor: int = 1, digits: int = 3, sign: str = "") -> str:
    mean, half = factor * facts["mean"], factor * facts["half_width"]
    return f"{mean:{sign}.{digits}f} ± {half:.{digits}f}"


def _difference(claim: dict[str, Any]) -> str:
    facts = {"mean": claim["difference"], "half_width": claim["half_width"]}
    return _interval(facts, sign="+")


def _claims(result: dict[str, Any]) -> str:
    """Arrange the verdicts on the claims as a table."""
    rows = [[claim["claim"], claim["verdict"], _difference(claim)] for claim in result["claims"]]
    return table(["claim", "verdict", "difference"], rows)


def least_of(values: Sequence[float], count: int) -> float:
    """Compute the expected minimum of ``count`` values drawn without replacement.

    >>> least_of([3.0, 1.0, 2.0], 2)  # of 1 and 2, 1 and 3, 2 and 3
    1.3333333333333333
    """
    ordered = sorted(values)
    num_draws = comb(len(ordered), count)
    # The i-th smallest value is the minimum if all other draws are above it.
    counts = (comb(len(ordered) - 1 - index, count - 1) for index in range(len(ordered)))
    return (
        sum(value * count_of_draws for value, count_of_draws in zip(ordered, counts, strict=True))
        / num_draws
    )


def _selection(result: dict[str, Any]) -> str:
    """Compute the gain from choosing the best of several networks on the test images."""
    losses = {m: row["measures"]["log_loss"]["seeds"] for m, row in _unscaled(result).items()}
    none, instance = losses["none"], losses["instance"]
    best = least_of(none, _REPEATS)
    mean = sum(none) / len(none)
    gain = mean - sum(instance) / len(instance)
    return (
        f"the mean test log loss of {len(none)} networks without smoothing is {mean:.4f}, that of "
        f"the best of {_REPEATS} of them by the test images {best:.4f} on average, "
        f"{mean - best:.4f} less, without any other training. Instance-based smoothing, chosen by "
        f"validation, gains {gain:.4f}. (Of the thesis's 10,000 test images chance is less.)"
    )


def findings() -> list[Finding]:
    """Collect the findings on networks."""
    result = study()
    rows = [Finding("table 12", f"{_count()} figures", "not run: needs images and a GPU", "")]
    for claim in result["claims"]:
        figure = f"claim: {claim['claim']} (digits)"
        rows.append(Finding(figure, "stated", _difference(claim), claim["verdict"]))
    unscaled = _unscaled(result)
    weak = _unscaled(read("networks_digits_weak"))["constant"]
    structure = {**{SMOOTHING[m]: unscaled[m] for m in SMOOTHING}, "constant and as weak": weak}
    structures = ", ".join(
        f"{name} {row['measures']['structure']['mean']:.2f}" for name, row in structure.items()
    )
    figures = "figures 28 and 29, structure of classes that is kept"
    return [
        *rows,
        Finding(figures, "pictures", structures, "as shown, but so does weak constant smoothing"),
    ]


def _count() -> int:
    return sum(len(values) for by_row in FIGURES.values() for values in by_row)
