"""Networks trained with several losses, then scaled by one temperature and by one weight.

This is the experiment of "Network calibration by weight scaling" (anonymous, 2023), table 1, on
images that are available. Networks are trained for all epochs, without early stopping, so the
calibration rows play no part in training.
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

#: Smoothing factor of the labels, weight of the MMCE, and power of the focal loss.
SMOOTHING, MMCE_WEIGHT, GAMMA = 0.05, 2.0, 3.0
#: Losses in the order of table 1, which does not have the last one.
LOSSES = "cross_entropy", "brier", "mmce", "label_smoothing", "focal"
DATA = "digits", "made"
NETWORKS = "convolutional", "dense"
#: Metrics; ECE (in 15 bins) without calibration, with scaling by grid search, and with the
#: library's methods.
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
#: Pairs of measures that are compared, the first minus the second.
COMPARED = {
    "weight less temperature": ("ece_weight", "ece_temperature"),
    "temperature by error less by log loss": ("ece_temperature", "ece_temperature_log_loss"),
    "weight in closed form less by error": ("ece_weight_squares", "ece_weight"),
}
_WIDTH, _HIDDEN = 8, (128, 128)
_MADE_TRAIN, _MADE_CALIBRATION, _MADE_TEST = 1000, 5000, 10_000
_VALIDATION_ROWS = 200
#: Learning rate; with a higher one, some networks end with equal outputs for all rows.
_RATE = 0.03


class Rows(NamedTuple):
    """Images and labels for training, calibration and testing."""

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
    r"""Train networks with each loss, and scale their predictions.

    The losses are cross-entropy; the Brier score; cross-entropy plus twice the maximum mean
    calibration error; cross-entropy with targets :math:`1 - a` for the label and
    :math:`a / (k - 1)` for each other class, a = 0.05; and the focal loss of power 3. All networks
    of a repeat are trained together, from the same initial weights. Then a grid search finds the
    temperature and the weight with the smallest calibration error on the calibration rows.

    Parameters
    ----------
    out : path
        Folder for ``losses.json``, ``losses.csv`` and ``parts``; created if it is missing.
    repeats : int
        Number of repeats. For "digits", each is a random split into a quarter for training, a
        quarter for calibration and a half for testing; for "made", each has new images.
    epochs : int
    data, networks : sequence of str, optional
        By default all of :data:`DATA` and :data:`NETWORKS`: a network of three small convolutions,
        and one of two hidden layers.
    made_rows : tuple of three int
        Numbers of synthetic images ("made") for training, calibration and testing.
    about : mapping of str to str, optional
        Versions and similar facts, written to the summary.
    progress : callable, optional
        Called with the next training, the number of finished trainings and the total number.

    Returns
    -------
    dict
        The content of ``losses.json``. ``cases`` contains, for each combination of data, network
        and loss, the :data:`MEASURED` values of all repeats, their means and standard errors, and
        differences. ``published`` is table 1.

    Raises
    ------
    ValueError
        If names are unknown or a count is below one.
    OSError
        If results cannot be written.

    Notes
    -----
    Means over splits of the same rows do not converge to the result for new rows. The standard
    errors allow for this (:func:`benchmarks.studies._repeats.mean_and_error`).

    References
    ----------
    Network calibration by weight scaling, anonymous submission to ICLR 2023. J. Mukhoti et al.
    (2020), Calibrating deep neural networks using focal loss, for the losses.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = run(folder, repeats=1, epochs=1, data=["digits"], networks=["dense"])
    >>> [case["loss"] for case in result["cases"]]
    ['cross_entropy', 'brier', 'mmce', 'label_smoothing', 'focal']
    """
    repeats, epochs = check_count(repeats, "repeats"), check_count(epochs, "epochs")
    data = choose(data, DATA, "data")
    networks = choose(networks, NETWORKS, "network")
    store = Results("losses", out, about)
    pairs = [(name, network) for name in data for network in networks]
    runs = [(*pair, repeat) for pair in pairs for repeat in range(repeats)]
    answers: dict[tuple[str, str], list[Any]] = {pair: [] for pair in pairs}
    sizes: dict[str, list[int]] = {}
    for name, network, repeat in counted(runs, lambda run: f"{run[0]}, {run[1]}", progress):
        rows = _rows(name, repeat, made_rows)
        sizes[name] = [len(labels) for _, labels in rows]
        question = {"data": name, "rows": sizes[name], "network": network, "repeat": repeat}
        answer = store.part(
            f"losses-{name}-{network}-{repeat}",
            {**question, "epochs": epochs, "rate": _RATE, "losses": [*LOSSES]},
            lambda old, rows=rows, network=network, repeat=repeat: (
                old or _train(rows, network, repeat, epochs)
            ),
        )
        answers[name, network].append(answer)
    cases = [
        _case(*pair, loss, [answer[loss] for answer in answers[pair]], _shared_ratio(pair[0]))
        for pair in pairs
        for loss in LOSSES
    ]
    header = ("data", "network", "loss", "repeat", *MEASURED)
    store.table(
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
    return store.summary("losses", summary)


def _shared_ratio(name: str) -> float:
    """Return the ratio of test rows to other rows if repeats split the same rows, otherwise 0."""
    return 1.0 if name == "digits" else 0.0


def _rows(name: str, repeat: int, sizes: tuple[int, int, int]) -> Rows:
    """Load or make images, and split them for training, calibration and testing."""
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
    """Build the loss functions of logits, labels and weights, in the order of ``LOSSES``."""
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


def _train(rows: Rows, network: str, seed: int, epochs: int) -> dict[str, Any]:
    """Train networks with all losses together, and measure each of them."""
    import jax

    from benchmarks.studies.training import TrainingData, train
    from benchmarks.studies.training.networks import MLP, Student

    all_losses = objectives()

    def loss(logits: Any, labels: Any, weights: Any, extras: Any, run: Any) -> Any:
        return jax.lax.switch(run["loss"], all_losses, logits, labels, weights)

    def make(rngs: Any) -> Any:
        if network == "dense":
            return MLP(x[0].size, _HIDDEN, classes, rngs=rngs)
        return Student(classes, x.shape[-1], _WIDTH, rngs=rngs)

    x, y = rows.train
    classes = int(y.max()) + 1
    scale = 255 if x.dtype == np.uint8 else 1
    axes = tuple(range(x.ndim - 1))
    mean, std = x.mean(axis=axes) / scale, x.std(axis=axes) / scale
    # A few validation rows save time; they have no effect, because the last epoch is used.
    validation, validation_labels = (part[:_VALIDATION_ROWS] for part in rows.calibration)
    trained = train(
        make,
        TrainingData(x, y, validation, validation_labels, mean, std),
        loss=loss,
        runs={"loss": np.arange(len(LOSSES))},
        seeds=(seed,),
        epochs=epochs,
        batch_size=64,
        learning_rate=_RATE,
        keep="last",
        progress=False,
    )
    logits = trained.logits(rows.calibration[0]), trained.logits(rows.test[0])
    return {
        name: measure(z.astype(float), rows.calibration[1], test.astype(float), rows.test[1])
        for name, z, test in zip(LOSSES, *logits, strict=True)
    }


def measure(
    logits: np.ndarray, y: np.ndarray, test: np.ndarray, test_y: np.ndarray
) -> dict[str, float]:
    """Compute the :data:`MEASURED` values of one network from logits (n, k) and (m, k)."""
    classes = tuple(range(logits.shape[1]))
    probs, test_probs = softmax(logits), softmax(test)
    temperature, weight = best_temperature(logits, y), best_weight(probs, y)
    by_loss = bc.Temperature(inputs="logits", classes=classes).fit(logits, y)
    median, squares = (bc.WeightScaling(norm=q, classes=classes).fit(probs, y) for q in (1, 2))
    test_predictions = {
        "ece": test_probs,
        "ece_temperature": softmax(test / temperature),
        "ece_weight": scaled_by_weight(test_probs, weight),
        "ece_temperature_log_loss": by_loss.predict_proba(test),
        "ece_weight_median": median.predict_proba(test_probs),
        "ece_weight_squares": squares.predict_proba(test_probs),
    }
    values = {
        "accuracy": metrics.accuracy(test_probs, test_y),
        "log_loss": metrics.log_loss(test_probs, test_y, eps=EPS),
        "confidence": float(test_probs.max(axis=1).mean()),
        "temperature": temperature,
        "weight": weight,
        **{
            name: metrics.ece(predictions, test_y) for name, predictions in test_predictions.items()
        },
    }
    return {name: values[name] for name in MEASURED}


def _case(
    data: str, network: str, loss: str, answers: list[dict[str, float]], shared: float
) -> dict[str, Any]:
    """Summarize the repeats of one combination of data, network and loss."""
    values = {key: [answer[key] for answer in answers] for key in MEASURED}
    differences = {
        name: difference(values[first], values[second], shared)
        for name, (first, second) in COMPARED.items()
    }
    return {
        "data": data,
        "network": network,
        "loss": loss,
        "measures": {key: mean_and_error(repeated, shared) for key, repeated in values.items()},
        "differences": differences,
        "values": values,
    }
