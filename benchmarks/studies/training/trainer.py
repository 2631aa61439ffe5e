"""Train networks with several seeds and settings in one compiled program."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax
import numpy as np

from bayescal.data.checks import check_choice, check_count
from benchmarks.studies.data import digest
from benchmarks.studies.training._groups import Group, Trainer
from benchmarks.studies.training._optimizer import make_optimizer
from benchmarks.studies.training._problem import (
    Extras,
    PerRun,
    Runs,
    Shared,
    TrainingData,
    check_classes,
    check_data,
    check_extras,
    check_runs,
    to_device,
)
from benchmarks.studies.training._progress import Report, showing
from benchmarks.studies.training._steps import DIVERGED, Measured, Network, Programs
from benchmarks.studies.training._trained import Trained

__all__ = ["PerRun", "Trained", "TrainingData", "train"]

#: Networks of more parameters are trained one after the other, unless the user says otherwise.
_SMALL = 300_000
_STATUS = np.array(["epochs", "stopped", "diverged"])


def train(
    make_network: Callable[[Any], Any],
    data: Any,
    *,
    loss: Callable[..., jax.Array],
    runs: Mapping[str, Any] | None = None,
    seeds: Sequence[int] = (0,),
    epochs: int = 100,
    batch_size: int = 128,
    optimizer: Any = None,
    learning_rate: float = 0.1,
    schedule: Any = "cosine",
    patience: int = 10,
    keep: Literal["best", "last"] = "best",
    augment: Callable[[jax.Array, jax.Array], jax.Array] | None = None,
    extras: Any = None,
    vectorize: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 1,
    progress: bool | Report = True,
) -> Trained:
    r"""Train a network for every combination of settings and seeds.

    A run makes at most ``epochs`` passes over the rows of training, each in a new order, and keeps
    the parameters of the epoch with the lowest log loss on the rows of validation. It stops when
    that has not improved for ``patience`` epochs. By default parameters :math:`\theta` follow

    .. math:: v \leftarrow 0.9\, v + \nabla L + 10^{-4}\, \theta, \qquad
              \theta \leftarrow \theta - \eta_t v, \qquad
              \eta_t = \tfrac\eta2 (1 + \cos(\pi t / T)),

    with all parameters decayed, those of normalization and biases too, t the number of steps made
    and T that of all epochs.

    Parameters
    ----------
    make_network : callable
        Takes ``flax.nnx.Rngs`` and returns a ``flax.nnx.Module`` that maps normalized inputs
        (b, ...) to logits (b, k). It is traced, so it must be pure.
    data : TrainingData
        Or any object with its attributes.
    loss : callable
        ``loss(logits, labels, weights, extras, run)`` returns a scalar to be minimized, usually a
        mean weighted by ``weights`` (b,), which are 0 in rows that only fill a batch and 1 in all
        others. ``labels`` (b,) are integers, ``extras`` holds the rows of the batch, ``run`` is a
        dict of the settings of the run.
    runs : dict of arrays of one length, optional
        Settings: the first entries are those of the first combination.
    seeds : sequence of int, default (0,)
        Each fixes how a network begins, the orders of rows, and the randomness of layers and
        ``augment``: settings are compared with all else equal.
    epochs : int, default 100
    batch_size : int, default 128
        At most the rows of training. The last batch of an epoch is filled with the first rows of
        its order: they have weight 0, and count only in the moments of batch normalization.
    optimizer : optax.GradientTransformation, optional
        Replaces the default with all its settings.
    learning_rate : float, default 0.1
    schedule : "cosine", "constant" or callable
        Or an optax schedule, the rate as a function of the number of steps, which also replaces
        ``learning_rate``.
    patience : int, default 10
        Epochs.
    keep : {"best", "last"}
        Which parameters a run keeps. Of "last" it makes all epochs, and the rows of validation have
        no part in it: they can calibrate.
    augment : callable, optional
        ``augment(inputs, key)`` returns changed inputs; called on each normalized batch of
        training.
    extras : pytree of arrays of shape (n, ...), optional
        Values for each row of training; those that differ between runs are wrapped in
        :class:`PerRun`.
    vectorize : bool, optional
        Whether all runs are trained at once, which takes the memory of all, or one after the other
        by the same program. On a processor the first is faster for dense layers, and slower by a
        fifth for small convolutional networks. By default at once if the network has at most
        300,000 parameters.
    checkpoint : path, optional
        Folder for the last two states. Calling again with the same arguments goes on from the last,
        with the same result as if it had not been interrupted; results there of other arguments are
        an error. The same versions of JAX and Flax and the same kind of device are needed.
    checkpoint_every : int, default 1
        Epochs between states; the last is always kept.
    progress : bool or callable
        Whether to show a bar on standard error, if that is a terminal; or a function that is called
        after each epoch with what was done, and the numbers of epochs done and in all.

    Returns
    -------
    Trained
        Runs are in the order of settings, and for each of them of seeds.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described; in particular if a label is no column of the logits, a
        part of the data is empty, or arrays differ in length.
    ImportError
        If Flax is not installed, or Orbax with ``checkpoint``.

    Warns
    -----
    RuntimeWarning
        If a loss was not finite: that run has ended, and keeps its best epoch until then.

    Notes
    -----
    Data stay on the device as they are given; 8-bit integers become floats batch by batch. One
    program is compiled, for one epoch of all runs that are trained at once. A run that has ended
    no longer changes, but takes time until the others have ended too.

    References
    ----------
    M. Maher (2020), Instance-based label smoothing for better classifier calibration, section 7.3,
    for the optimizer, its rate and decay, and for stopping; I. Loshchilov and F. Hutter (2017),
    SGDR: stochastic gradient descent with warm restarts, for the cosine.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from benchmarks.studies.training.networks import MLP
    >>> x = np.random.default_rng(0).normal(size=(300, 2))
    >>> y = (x[:, 0] > 0).astype(int)
    >>> def smoothed(logits, labels, weights, extras, run):
    ...     targets = jax.nn.one_hot(labels, 2) * (1 - run["smoothing"]) + run["smoothing"] / 2
    ...     losses = -(targets * jax.nn.log_softmax(logits)).sum(axis=1)
    ...     return weights @ losses / weights.sum()
    >>> trained = train(
    ...     lambda rngs: MLP(2, (), 2, rngs=rngs),
    ...     TrainingData(x[:200], y[:200], x[200:], y[200:]),
    ...     loss=smoothed,
    ...     runs={"smoothing": [0.0, 0.1]},
    ...     epochs=20,
    ...     progress=False,
    ... )
    >>> trained.logits(x[200:]).shape
    (2, 100, 2)
    >>> bool((trained.history["validation_accuracy"][:, -1] > 0.9).all())
    True
    """
    epochs, batch_size = check_count(epochs, "epochs"), check_count(batch_size, "batch_size")
    patience = check_count(patience, "patience")
    check_choice(keep, "keep", ("best", "last"))
    checkpoint_every = check_count(checkpoint_every, "checkpoint_every")
    x, y, x_validation, y_validation, mean, std = check_data(data)
    table, seed = check_runs(runs, seeds)
    count, rows = len(seed), len(x)
    given = check_extras(extras, rows, count)
    network = Network(make_network)
    classes = _classes(network, x)
    y = check_classes(y, classes, "train_labels")
    y_validation = check_classes(y_validation, classes, "validation_labels")
    batch = min(batch_size, rows)
    optimizer = make_optimizer(optimizer, learning_rate, schedule, epochs * math.ceil(rows / batch))
    parameters = sum(leaf.size for leaf in jax.tree.leaves(network.abstract[0]))
    together = parameters <= _SMALL if vectorize is None else bool(vectorize)
    about = None
    if checkpoint is not None:
        arrays = [x, y, x_validation, y_validation, mean, std]
        about = {
            "batch_size": batch,
            "data": digest(arrays),
            "epochs": epochs,
            "extras": digest([np.asarray(leaf) for leaf in (*given.shared, *given.own)]),
            "patience": patience,
        }
    trainer = Trainer(
        Programs(network, loss, optimizer, given, batch, patience, keep, augment),
        Shared(
            to_device(x),
            to_device(y),
            to_device(x_validation),
            to_device(y_validation),
            to_device(mean),
            to_device(std),
            given.shared,
        ),
        epochs,
        checkpoint,
        checkpoint_every,
        about,
    )
    size = count if together else 1
    groups = []
    with showing(progress) as report:
        for first in range(0, count, size):
            part = slice(first, first + size)
            groups.append(trainer.group(_runs(table, seed, given, part), report, first, count))
    return _gather(groups, table, seed, trainer, network, (mean, std))


def _classes(network: Network, x: np.ndarray) -> int:
    """Compute the number of logits of the network."""
    logits = jax.eval_shape(
        network.evaluate,
        *network.abstract,
        jax.ShapeDtypeStruct((2, *x.shape[1:]), to_device(np.zeros(0)).dtype),
    )
    if getattr(logits, "ndim", 0) != 2 or logits.shape[0] != 2 or logits.shape[1] < 2:
        raise ValueError(
            "make_network must make a network that returns logits (b, k) of at least two classes, "
            f"got {getattr(logits, 'shape', type(logits).__name__)} for 2 rows"
        )
    return logits.shape[1]


def _runs(table: Mapping[str, np.ndarray], seed: np.ndarray, extras: Extras, part: slice) -> Runs:
    """Select the runs that are trained together."""
    return Runs(
        to_device(seed[part]),
        {name: to_device(values[part]) for name, values in table.items()},
        [values[part] for values in extras.own],
    )


def _gather(
    groups: Sequence[Group],
    table: Mapping[str, np.ndarray],
    seed: np.ndarray,
    trainer: Trainer,
    network: Network,
    moments: tuple[np.ndarray, np.ndarray],
) -> Trained:
    """Join all runs, and warn of those that diverged."""
    params, rest = jax.tree.map(
        lambda *parts: jax.numpy.concatenate(parts),
        *((group.params, group.rest) for group in groups),
    )
    status = np.concatenate([group.status for group in groups])
    history = np.concatenate([group.history for group in groups], axis=1)
    used = np.isfinite(history).any(axis=(0, 1)).sum()
    diverged = np.flatnonzero(status == DIVERGED)
    if len(diverged):
        warnings.warn(
            f"runs {diverged.tolist()} of {len(seed)} diverged: a loss was not finite. They keep "
            "their best epoch until then; lower learning_rate",
            RuntimeWarning,
            stacklevel=3,
        )
    return Trained(
        params,
        rest,
        {**table, "seed": seed.astype(np.int64)},
        dict(zip(Measured._fields, history[:, :, : max(used, 1)], strict=True)),
        np.concatenate([group.best_epoch for group in groups]),
        _STATUS[status],
        trainer.seconds,
        trainer.rows,
        *moments,
        network.evaluating,
    )
