"""Checkpoints of arrays and metadata in folders, written by Orbax."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as orbax

from benchmarks.studies.data import digest

Arrays = Mapping[str, Mapping[str, np.ndarray]]
_KEPT = 2


def pack(tree: Any) -> dict[str, np.ndarray]:
    """Convert the leaves of a tree to NumPy arrays by position; random keys become integers."""
    packed = {}
    for place, leaf in enumerate(jax.tree.leaves(tree)):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        packed[f"{place:04d}"] = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
    return packed


def unpack(arrays: Mapping[str, np.ndarray], like: Any) -> Any:
    """Rebuild a tree with the structure of another, which may be abstract, from packed arrays."""
    leaves, structure = jax.tree.flatten(like)
    if len(leaves) != len(arrays):
        raise ValueError(
            f"a network of {len(leaves)} arrays cannot take the {len(arrays)} that are stored"
        )
    unpacked = []
    for name, leaf in zip(sorted(arrays), leaves, strict=True):
        array = jnp.asarray(arrays[name])
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            array = jax.random.wrap_key_data(array)
        if array.shape != leaf.shape or array.dtype != leaf.dtype:
            raise ValueError(
                f"an array of shape {leaf.shape} and dtype {leaf.dtype} cannot take the stored one "
                f"of shape {array.shape} and dtype {array.dtype}"
            )
        unpacked.append(array)
    return jax.tree.unflatten(structure, unpacked)


class Checkpoints:
    """The last states of a training run, in a folder.

    Parameters
    ----------
    folder : path
        Made if it is missing.
    about : dict
        What the training was asked for, in words that JSON holds.
    """

    def __init__(self, folder: str | os.PathLike[str], about: Mapping[str, Any]) -> None:
        self._folder, self._about = Path(folder).resolve(), dict(about)
        self._manager = orbax.CheckpointManager(
            self._folder,
            options=orbax.CheckpointManagerOptions(
                max_to_keep=_KEPT, enable_async_checkpointing=False
            ),
        )

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *_: object) -> None:
        self._manager.close()

    def latest(self) -> dict[str, dict[str, np.ndarray]] | None:
        """Read the arrays of the last state; None if there is none.

        Raises
        ------
        ValueError
            If they belong to a training that was asked for something else, or are damaged.
        """
        step = self._manager.latest_step()
        if step is None:
            return None
        arrays, stored = _restore(
            lambda args: self._manager.restore(step, args=args),
            f"checkpoint {self._folder / str(step)} is damaged: delete this folder, and training "
            "goes on from the one before, or from the beginning",
        )
        wanted = self._about
        other = sorted(name for name in {*stored, *wanted} if stored.get(name) != wanted.get(name))
        if other:
            raise ValueError(
                f"checkpoint {self._folder} must be one of the same training; it differs in "
                f"{', '.join(other)}. Pass the same arguments, or another folder"
            )
        return arrays

    def save(self, step: int, arrays: Arrays) -> None:
        """Write a state, and delete all but the previous one."""
        self._manager.save(step, args=_to_save(arrays, self._about))


def write(folder: str | os.PathLike[str], arrays: Arrays, about: Mapping[str, Any]) -> None:
    """Write arrays to a folder that does not exist yet."""
    path = Path(folder).resolve()
    if path.exists():
        raise FileExistsError(f"{path} exists: give a folder that does not")
    with orbax.Checkpointer(orbax.CompositeCheckpointHandler()) as writer:
        writer.save(path, args=_to_save(arrays, about))


def read(
    folder: str | os.PathLike[str],
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, Any]]:
    """Read the arrays and metadata that :func:`write` wrote."""
    path = Path(folder).resolve()
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is no folder")
    if not (path / "about").is_dir():
        raise ValueError(f"{path} must hold trained networks, it has no part 'about'")
    with orbax.Checkpointer(orbax.CompositeCheckpointHandler()) as reader:
        return _restore(
            lambda args: reader.restore(path, args=args),
            f"{path} is damaged: train and save these networks again, or copy the folder anew",
        )


def _to_save(arrays: Arrays, about: Mapping[str, Any]) -> orbax.args.Composite:
    shapes = {
        part: {name: [list(value.shape), str(value.dtype)] for name, value in values.items()}
        for part, values in arrays.items()
    }
    stored = json.loads(json.dumps({**about, "arrays": shapes}))
    stored["digest"] = _digest(arrays, stored)
    args = orbax.args
    return args.Composite(arrays=args.StandardSave(arrays), about=args.JsonSave(stored))


def _restore(
    restore: Callable[[orbax.args.Composite], Any], damaged: str
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, Any]]:
    """Read arrays and metadata; raise ValueError if the files are damaged."""
    args = orbax.args
    try:
        about = dict(restore(args.Composite(about=args.JsonRestore()))["about"])
        stated = about.pop("digest")
        wanted = args.StandardRestore(_empty(about["arrays"]))
        arrays = restore(args.Composite(arrays=wanted))["arrays"]
        same = stated == _digest(arrays, about)
    except (MemoryError, PermissionError):
        raise
    except Exception as error:  # Of damaged files Orbax raises nearly anything.
        raise ValueError(damaged) from error
    if not same:
        raise ValueError(damaged)
    del about["arrays"]
    return arrays, about


def _digest(arrays: Arrays, about: Mapping[str, Any]) -> str:
    values = (
        np.asarray(arrays[part][name]) for part in sorted(arrays) for name in sorted(arrays[part])
    )
    text = json.dumps(about, sort_keys=True) + digest(values)
    return hashlib.sha256(text.encode()).hexdigest()


def _empty(shapes: Mapping[str, Any]) -> dict[str, dict[str, np.ndarray]]:
    return {
        part: {name: np.empty(shape, dtype) for name, (shape, dtype) in values.items()}
        for part, values in shapes.items()
    }
