"""Networks taught by several losses, scaled by one temperature and by one weight.

The experiment of "Network calibration by weight scaling" (anonymous, 2023), table 1, on images that
can be had. Networks make all their epochs, so that no calibration row has a part in training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import bayescal as bc
from bayescal import metrics
from bayescal._core.numerics import softmax
from bayescal.data.checks import check_count
from benchmarks.studies import _published_weights as published
from benchmarks.studies._measures import EPS
from benchmarks.studies._repeats import difference, mean_and_error
from benchmarks.studies._scaling_grid import best_temperature, best_weight, scaled_by_weight
from benchmarks.studies.data import choose
from benchmarks.studies.store import Progress, Results, counted

__all__ = ["DATA", "LOSSES", "MEASURED", "NETWORKS", "run"]

#: The share of labels that is moved, the weight of the MMCE, the power of the focal loss.
SMOOTHING, MMCE_WEIGHT, GAMMA = 0.05, 2.0, 3.0
#: In the order of table 1; the last is not there.
LOSSES = "cross_entropy", "brier", "mmce", "label_smoothing", "focal"
DATA = "digits", "made"
NETWORKS = "convolutional", "dense"
#: ECE in 15 bins: uncalibrated, by grid, and by the library's methods.
MEASURED = (
    "accuracy",
    "log_loss",
    "confidence",
    "ece",
    "temperature",
    "ece_temperature",
    "weight",
    "ece_weight",
    "ece_temperature_log_loss",
    "ece_weight_median",
    "ece_weight_squares",
)
#: What is compared: of two measures the first less the second.
COMPARED = {
    "weight less temperature": ("ece_weight", "ece_temperature"),
    "temperature by error less by log loss": ("ece_temperature", "ece_temperature_log_loss"),
    "weight in closed form less by error": ("ece_weight_squares", "ece_weight"),
}
_WIDTH, _HIDDEN = 8, (128, 128)
_MADE_TRAIN, _MADE_CALIBRATION, _MADE_TEST = 1000, 5000, 10_000
_WATCHED = 200
#: With more, some networks end where all outputs are equal.
_RATE = 0.03


class Rows(NamedTuple):
    """Images and labels to train on, to calibrate on, and to test on."""

    train: tuple[np.ndarray, np.ndarray]
    calibration: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def run(
    out: str | Path,
    *,
    repeats: int = 5,
    epochs: int = 100,
    data: Sequence[str] | None = None,
    networks: Sequence[str] | None = None,
    made_rows: tuple[int, int, int] = (_MADE_TRAIN, _MADE_CALIBRATION, _MADE_TEST),
    about: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    r"""Train networks by each loss, and scale what they predict.

    The losses are cross-entropy; the Brier score; cross-entropy plus twice the maximum mean
    calibration error; cross-entropy with targets :math:`1 - a` for the label and
    :math:`a / (k - 1)` for each other class, a = .05; and the focal loss of power 3. All networks
    of a repeat are trained at once, from the same beginning. Then the temperature and the weight
    with the least calibration error on the calibration rows are searched on a grid.

    Parameters
    ----------
    out : path
        Folder for ``losses.json``, ``losses.csv`` and ``parts``; made if it is missing.
    repeats : int
        Of "digits", random splits into a quarter to train, a quarter to calibrate and a half to
        test; of "made", sets of images of their own.
    epochs : int
    data, networks : sequence of str, optional
        By default all of :data:`DATA` and :data:`NETWORKS`: a network of three small convolutions,
        and one of two hidden layers.
    made_rows : tuple of three int
        Made images to train, to calibrate and to test.
    about : mapping of str to str, optional
        Versions and the like, written to the summary.
    progress : callable, optional
        Called with what is trained next, the number of trainings done and of all.

    Returns
    -------
    dict
        The content of ``losses.json``: for each of ``cases``, data, network and loss, the
        :data:`MEASURED` values of all repeats, their means and standard errors, and differences;
        ``published``, table 1.

    Raises
    ------
    ValueError
        For unknown names or a count below one.
    OSError
        If results cannot be written.

    Notes
    -----
    Means over splits of the same rows do not approach what new rows would give, which their
    standard errors allow for (:func:`benchmarks.studies._repeats.mean_and_error`).

    References
    ----------
    Network calibration by weight scaling, anonymous submission to ICLR 2023. J. Mukhoti et al.
    (2020), Calibrating deep neural networks using focal loss, for the losses.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = run(folder, repeats=1, epochs=1, data=["digits"], networks=["dense"])
    >>> [case["loss"] for case in found["cases"]]
    ['cross_entropy', 'brier', 'mmce', 'label_smoothing', 'focal']
    """
    repeats, epochs = check_count(repeats, "repeats"), check_count(epochs, "epochs")
    data = choose(data, DATA, "data")
    networks = choose(networks, NETWORKS, "network")
    kept = Results("losses", out, about)
    pairs = [(name, network) for name in data for network in networks]
    runs = [(*pair, repeat) for pair in pairs for repeat in range(repeats)]
    found: dict[tuple[str, str], list[Any]] = {pair: [] for pair in pairs}
    sizes: dict[str, list[int]] = {}
    for name, network, repeat in counted(runs, lambda run: f"{run[0]}, {run[1]}", progress):
        rows = _rows(name, repeat, made_rows)
        sizes[name] = [len(labels) for _, labels in rows]
        question = {"data": name, "rows": sizes[name], "network": network, "repeat": repeat}
        answer = kept.part(
            f"losses-{name}-{network}-{repeat}",
            {**question, "epochs": epochs, "rate": _RATE, "losses": [*LOSSES]},
            lambda old, rows=rows, network=network, repeat=repeat: (
                old or _trained(rows, network, repeat, epochs)
            ),
        )
        found[name, network].append(answer)
    cases = [
        _case(*pair, loss, [answer[loss] for answer in found[pair]], _shared(pair[0]))
        for pair in pairs
        for loss in LOSSES
    ]
    header = ("data", "network", "loss", "repeat", *MEASURED)
    kept.table(
        "losses",
        header,
        [
            [case["data"], case["network"], case["loss"], repeat]
            + [case["values"][key][repeat] for key in MEASURED]
            for case in cases
            for repeat in range(repeats)
        ],
    )
    summary = {
        "repeats": repeats,
        "epochs": epochs,
        "rows": sizes,
        "cases": cases,
        "published": published.TABLE_1,
    }
    return kept.summary("losses", summary)


def _shared(name: str) -> float:
    """Return the test rows by all others where repeats split the same rows."""
    return 1.0 if name == "digits" else 0.0


def _rows(name: str, repeat: int, sizes: tuple[int, int, int]) -> Rows:
    from benchmarks.studies.training import load_images, made_images

    if name == "made":
        images = made_images(sizes[0] + sizes[1], sizes[2], seed=repeat)
    else:
        images = load_images("digits")
    x = np.concatenate([images.train_images, images.test_images])
    y = np.concatenate([images.train_labels, images.test_labels])
    order = np.arange(len(y))
    if name == "digits":
        order = np.random.default_rng(repeat).permutation(len(y))
        sizes = (len(y) // 4, len(y) // 4, 0)
    parts = np.split(order, np.cumsum(sizes[:2]))
    return Rows(*((x[part], y[part]) for part in parts))


def objectives() -> list[Callable[..., Any]]:
    """Return the losses, functions of logits, labels and weights, in the order of their names."""
    from bayescal import losses

    def smoothed(logits: Any, labels: Any, weights: Any) -> Any:
        k = logits.shape[-1]
        eps = SMOOTHING * k / (k - 1)
        return losses.smoothed_cross_entropy(logits, labels, eps, weights=weights)

    def with_mmce(logits: Any, labels: Any, weights: Any) -> Any:
        error = losses.mmce(logits, labels, weights=weights)
        return losses.cross_entropy(logits, labels, weights=weights) + MMCE_WEIGHT * error

    return [
        lambda logits, labels, weights: losses.cross_entropy(logits, labels, weights=weights),
        lambda logits, labels, weights: losses.brier(logits, labels, weights=weights),
        with_mmce,
        smoothed,
        lambda logits, labels, weights: losses.focal(logits, labels, GAMMA, weights=weights),
    ]


def _trained(rows: Rows, network: str, seed: int, epochs: int) -> dict[str, Any]:
    """Train networks by all losses at once, and return what is measured of each."""
    import jax

    from benchmarks.studies.training import TrainingData, train
    from benchmarks.studies.training.networks import MLP, Student

    every = objectives()

    def loss(logits: Any, labels: Any, weights: Any, extras: Any, run: Any) -> Any:
        return jax.lax.switch(run["loss"], every, logits, labels, weights)

    def make(rngs: Any) -> Any:
        if network == "dense":
            return MLP(x[0].size, _HIDDEN, classes, rngs=rngs)
        return Student(classes, x.shape[-1], _WIDTH, rngs=rngs)

    x, y = rows.train
    classes = int(y.max()) + 1
    scale = 255 if x.dtype == np.uint8 else 1
    axes = tuple(range(x.ndim - 1))
    mean, std = x.mean(axis=axes) / scale, x.std(axis=axes) / scale
    # Some are watched, to no effect; that all are would take time.
    watched, known = (part[:_WATCHED] for part in rows.calibration)
    trained = train(
        make,
        TrainingData(x, y, watched, known, mean, std),
        loss=loss,
        runs={"loss": np.arange(len(LOSSES))},
        seeds=(seed,),
        epochs=epochs,
        batch_size=64,
        learning_rate=_RATE,
        keep="last",
        progress=False,
    )
    both = trained.logits(rows.calibration[0]), trained.logits(rows.test[0])
    return {
        name: measure(z.astype(float), rows.calibration[1], test.astype(float), rows.test[1])
        for name, z, test in zip(LOSSES, *both, strict=True)
    }


def measure(
    logits: np.ndarray, y: np.ndarray, test: np.ndarray, test_y: np.ndarray
) -> dict[str, float]:
    """Return what is :data:`MEASURED` of one network, from logits (n, k) and (m, k)."""
    classes = tuple(range(logits.shape[1]))
    probs, test_probs = softmax(logits), softmax(test)
    temperature, weight = best_temperature(logits, y), best_weight(probs, y)
    by_loss = bc.Temperature(inputs="logits", classes=classes).fit(logits, y)
    median, squares = (bc.WeightScaling(norm=q, classes=classes).fit(probs, y) for q in (1, 2))
    ways = {
        "ece": test_probs,
        "ece_temperature": softmax(test / temperature),
        "ece_weight": scaled_by_weight(test_probs, weight),
        "ece_temperature_log_loss": by_loss.predict_proba(test),
        "ece_weight_median": median.predict_proba(test_probs),
        "ece_weight_squares": squares.predict_proba(test_probs),
    }
    found = {
        "accuracy": metrics.accuracy(test_probs, test_y),
        "log_loss": metrics.log_loss(test_probs, test_y, eps=EPS),
        "confidence": float(test_probs.max(axis=1).mean()),
        "temperature": temperature,
        "weight": weight,
        **{name: metrics.ece(own, test_y) for name, own in ways.items()},
    }
    return {name: found[name] for name in MEASURED}


def _case(
    data: str, network: str, loss: str, answers: list[dict[str, float]], shared: float
) -> dict[str, Any]:
    values = {key: [answer[key] for answer in answers] for key in MEASURED}
    gaps = {
        name: difference(values[one], values[other], shared)
        for name, (one, other) in COMPARED.items()
    }
    return {
        "data": data,
        "network": network,
        "loss": loss,
        "measures": {key: mean_and_error(own, shared) for key, own in values.items()},
        "differences": gaps,
        "values": values,
    }
