"""Train runs together: programs, epochs and checkpoints."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks.studies.data import digest
from benchmarks.studies.training._checkpoints import Checkpoints, pack, unpack
from benchmarks.studies.training._problem import Runs, Shared
from benchmarks.studies.training._progress import Report
from benchmarks.studies.training._steps import RUNNING, Measured, Programs, over_runs

#: Random numbers are drawn once: to optimize that would take longer than training a small network.
_OPTIONS = {"begin": {"xla_backend_optimization_level": 0}, "epoch": None}


class Group(NamedTuple):
    """The result of runs that were trained together."""

    params: Any
    rest: Any
    best_epoch: np.ndarray
    status: np.ndarray
    history: np.ndarray


class Trainer:
    """Groups of equal numbers of runs, trained by one program."""

    def __init__(
        self,
        programs: Programs,
        shared: Shared,
        epochs: int,
        checkpoint: str | os.PathLike[str] | None,
        every: int,
        about: Mapping[str, Any] | None,
    ) -> None:
        self._programs, self._shared, self._epochs = programs, shared, epochs
        self._folder = None if checkpoint is None else Path(checkpoint)
        self._every, self._about = every, about or {}
        self._abstract: Any = None
        self._lowered: dict[str, Any] = {}
        self._ready: dict[str, Any] = {}
        self.rows = len(shared.labels)
        self.seconds = {"compile": 0.0, "train": 0.0}

    def group(self, runs: Runs, report: Report | None, first: int, count: int) -> Group:
        """Train runs until all have ended."""
        size = len(runs.seed)
        self._lower(runs)
        history = np.full((len(Measured._fields), size, self._epochs), np.nan)
        done, seconds = 0, 0.0
        with self._checkpoints(runs, first) as checkpoints:
            checkpoint = checkpoints.latest() if checkpoints else None
            if checkpoint:
                state = unpack(checkpoint["state"], self._abstract)
                history = np.array(checkpoint["other"]["history"])
                seconds = float(checkpoint["other"]["seconds"][0])
                done = int(np.asarray(state.epoch).max())
            else:
                state = self._compiled("begin")(runs.seed)
            going = (np.asarray(state.status) == RUNNING).any()
            while going and done < self._epochs:
                epoch = self._compiled("epoch")
                start = time.perf_counter()
                state, measured = jax.block_until_ready(epoch(state, runs, self._shared))
                seconds += time.perf_counter() - start
                history[:, :, done] = np.stack([np.asarray(values) for values in measured])
                done += 1
                going = (np.asarray(state.status) == RUNNING).any()
                ended = not going or done == self._epochs
                if checkpoints and (ended or done % self._every == 0):
                    other = {"history": history, "seconds": np.array([seconds])}
                    checkpoints.save(done, {"state": pack(state), "other": other})
                if report:
                    best = np.nanmin(history[1]) if np.isfinite(history[1]).any() else np.nan
                    report(
                        f"epoch {done}: validation log loss {best:.4f}",
                        first // size * self._epochs + (self._epochs if ended else done),
                        count // size * self._epochs,
                    )
        self.seconds["train"] += seconds
        return Group(
            state.best_params,
            state.best_rest,
            np.asarray(state.best_epoch),
            np.asarray(state.status),
            history,
        )

    def _lower(self, runs: Runs) -> None:
        """Trace the programs at the first call."""
        if self._lowered:
            return
        size = len(runs.seed)
        begin = jax.jit(over_runs(self._programs.begin, size, shared=False))
        epoch = jax.jit(over_runs(self._programs.epoch, size, shared=True))
        self._abstract = jax.eval_shape(begin, runs.seed)
        self._lowered = {
            "begin": begin.lower(runs.seed),
            "epoch": epoch.lower(self._abstract, runs, self._shared),
        }
        if self._folder is not None:
            # The text of a program tells networks, losses and optimizers apart.
            texts = [lowered.as_text().encode() for lowered in self._lowered.values()]
            program = digest([np.frombuffer(text, np.uint8) for text in texts])
            self._about = {**self._about, "network, loss or optimizer": program}

    def _compiled(self, name: str) -> Any:
        """Compile a program; runs that are already finished need none."""
        if name not in self._ready:
            start = time.perf_counter()
            self._ready[name] = self._lowered[name].compile(_OPTIONS[name])
            self.seconds["compile"] += time.perf_counter() - start
        return self._ready[name]

    @contextlib.contextmanager
    def _checkpoints(self, runs: Runs, first: int) -> Iterator[Checkpoints | None]:
        if self._folder is None:
            yield None
            return
        of_group = {
            "runs": {name: digest([np.asarray(v)]) for name, v in runs.settings.items()},
            "seeds": np.asarray(runs.seed).tolist(),
        }
        with Checkpoints(
            self._folder / f"runs-{first:04d}", {**self._about, **of_group}
        ) as checkpoints:
            yield checkpoints
