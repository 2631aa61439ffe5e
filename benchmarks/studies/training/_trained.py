"""Trained networks."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from bayescal.data.checks import check_count
from benchmarks.studies.training._checkpoints import pack, read, unpack, write
from benchmarks.studies.training._problem import check_inputs, to_device
from benchmarks.studies.training._steps import Network, forward

_FORMAT = "bayescal trained networks"


@dataclass(frozen=True)
class Trained:
    """Trained networks of one structure, one for each run, at the selected epoch.

    Attributes
    ----------
    params : flax.nnx.State
        The parameters, with a leading axis of runs.
    rest : flax.nnx.State
        What else the networks hold, such as running averages; with a leading axis of runs.
    runs : dict of array of shape (runs, ...)
        The hyper-parameters of each run, and its ``"seed"``.
    history : dict of array of shape (runs, epochs)
        ``"train_loss"``, the mean of the loss over the epoch's steps; ``"validation_log_loss"``, in
        nats; ``"validation_accuracy"``. NaN once a run has ended.
    best_epoch : array of shape (runs,), int
        The column of ``history`` which the parameters are from: that with the lowest validation
        log loss, or the last, whichever ``train`` was to keep; -1 where none was finite: then the
        parameters are those before training.
    status : array of shape (runs,), str
        ``"stopped"`` for want of improvement, ``"epochs"`` if all epochs were made, or
        ``"diverged"`` if a loss was not finite.
    seconds : dict of float
        ``"compile"``, and ``"train"`` without it: of all runs, and over interruptions.
    rows : int
        Rows of training.
    mean, std : array
        What inputs are normalized by.

    See Also
    --------
    benchmarks.studies.training.trainer.train : makes it, with an example.
    """

    params: Any = field(repr=False)
    rest: Any = field(repr=False)
    runs: dict[str, np.ndarray]
    history: dict[str, np.ndarray]
    best_epoch: np.ndarray
    status: np.ndarray
    seconds: dict[str, float]
    rows: int
    mean: np.ndarray
    std: np.ndarray
    structure: Any = field(repr=False)

    def __len__(self) -> int:
        return len(self.best_epoch)

    @property
    def images_per_second(self) -> float:
        """Training rows per second, summed over active runs."""
        epochs = np.isfinite(self.history["validation_accuracy"]).sum()
        return float(epochs * self.rows / self.seconds["train"])

    def logits(self, inputs: Any, run: int | None = None, batch_size: int = 512) -> np.ndarray:
        """Compute logits of inputs, which are normalized as in training.

        Parameters
        ----------
        inputs : array of shape (n, ...)
            Like ``train_inputs``; held on the device by ``batch_size`` rows.
        run : int, optional
            Which network; by default all.
        batch_size : int, default 512

        Returns
        -------
        array of shape (runs, n, k), or (n, k) for one run

        Raises
        ------
        TypeError, ValueError
            If inputs are not like those of training.
        IndexError
            If there is no such run.
        """
        size = check_count(batch_size, "batch_size")
        array = check_inputs(inputs, "inputs")
        moments = to_device(self.mean), to_device(self.std)
        size = min(size, len(array))
        chosen = range(len(self)) if run is None else [self._index(run)]
        networks = [self._parts(place) for place in chosen]
        logits_of: list[list[np.ndarray]] = [[] for _ in networks]
        for first in range(0, len(array), size):
            part = array[first : first + size]
            padded = np.concatenate([part, np.repeat(part[-1:], size - len(part), axis=0)])
            on_device = to_device(padded)
            for network, logits in zip(networks, logits_of, strict=True):
                values = forward(self.structure, *network, on_device, *moments)
                logits.append(np.asarray(values)[: len(part)])
        every = np.stack([np.concatenate(logits) for logits in logits_of])
        return every if run is None else every[0]

    def network(self, run: int = 0) -> Any:
        """Return the network of a run as a module, in evaluation mode.

        It takes inputs that are normalized already.

        Raises
        ------
        IndexError
            If there is no such run.
        """
        return nnx.merge(self.structure, *self._parts(self._index(run)), copy=True)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the networks to a folder that does not exist yet.

        Raises
        ------
        FileExistsError
            If there is such a folder.
        ImportError
            If Orbax is not installed.
        """
        arrays = {
            "params": pack(self.params),
            "rest": pack(self.rest),
            "runs": self.runs,
            "history": self.history,
            "other": {"best_epoch": self.best_epoch, "mean": self.mean, "std": self.std},
        }
        write(
            folder,
            {name: values for name, values in arrays.items() if values},
            {
                "format": _FORMAT,
                "status": self.status.tolist(),
                "seconds": self.seconds,
                "rows": self.rows,
            },
        )

    @classmethod
    def load(cls, folder: str | os.PathLike[str], make_network: Callable[[Any], Any]) -> Trained:
        """Read the networks that :meth:`save` wrote.

        Parameters
        ----------
        folder : path
        make_network : callable
            The function that made the networks: a folder holds numbers, not code.

        Raises
        ------
        FileNotFoundError
            If there is no such folder.
        ValueError
            If it holds something else, or another network than ``make_network`` makes.
        ImportError
            If Flax or Orbax is not installed.
        """
        arrays, about = read(folder)
        if about.get("format") != _FORMAT:
            raise ValueError(f"{folder} must hold trained networks, got {about.get('format')!r}")
        network = Network(make_network)
        count = len(arrays["other"]["best_epoch"])
        like = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape), leaf.dtype), network.abstract
        )
        params, rest = (
            unpack(arrays.get(name, {}), part)
            for name, part in zip(("params", "rest"), like, strict=True)
        )
        return cls(
            params,
            rest,
            arrays["runs"],
            arrays["history"],
            arrays["other"]["best_epoch"],
            np.array(about["status"]),
            about["seconds"],
            about["rows"],
            np.asarray(arrays["other"]["mean"]),
            np.asarray(arrays["other"]["std"]),
            network.evaluating,
        )

    def _index(self, run: int) -> int:
        if not -len(self) <= run < len(self):
            raise IndexError(f"run must be one of {len(self)}, got {run}")
        return run

    def _parts(self, run: int) -> tuple[Any, Any]:
        """Select the parameters and other state of one run."""
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[run], (self.params, self.rest))
