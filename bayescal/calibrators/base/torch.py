"""Fitted calibrators as PyTorch modules."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from functools import cache
from typing import Any

from bayescal._core.arrays import AnyArray, Array, XArray

#: Separates nested names in names of buffers, which must not contain dots.
_SEPARATOR = "__"


@cache
def _class() -> type:
    """Return the module class, which is defined on first use because it needs PyTorch."""
    import torch  # pyright: ignore[reportMissingImports]

    class CalibratorModule(torch.nn.Module):
        """A module whose buffers, and parameters, are the arrays of a ``PredictFunction``."""

        def __init__(self, function: Any, dtype: Any, trained: Container[str]) -> None:
            super().__init__()
            self.function = function.with_arrays({})
            self.empty = {}
            for name, values in _flat(function.arrays):
                kind = dtype if values.dtype.kind == "f" else None
                array = torch.tensor(values, dtype=kind).contiguous()
                # Exported programs cannot contain empty buffers.
                if name in trained:
                    self.register_parameter(name, torch.nn.Parameter(array))
                elif values.size:
                    self.register_buffer(name, array)
                else:
                    self.empty[name] = array

        def forward(self, scores: Array) -> XArray:
            arrays = {}
            moved = {name: array.to(scores.device) for name, array in self.empty.items()}
            held = *self.named_buffers(), *self.named_parameters()
            for name, array in (*held, *moved.items()):
                *path, last = name.split(_SEPARATOR)
                branch = arrays
                for part in path:
                    branch = branch.setdefault(part, {})
                branch[last] = array
            return self.function.with_arrays(arrays)(scores)

        def extra_repr(self) -> str:
            """Return the text that PyTorch shows in the representation of the module."""
            return repr(self.function)

    # Pickle looks the class up by its name in this module.
    CalibratorModule.__qualname__ = "CalibratorModule"
    CalibratorModule.__module__ = __name__
    return CalibratorModule


def as_module(function: Any, dtype: object = None, trainable: bool = False) -> Any:
    """Make a module with arrays of the type ``dtype``, by default PyTorch's default."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(f"as_module needs PyTorch: pip install torch ({error})") from error
    trained: set[str] = set()
    if trainable:
        last = {name: name.split(_SEPARATOR)[-1] for name, _ in _flat(function.arrays)}
        if not any(entry == "theta_draws" for entry in last.values()):
            trained = {name for name, entry in last.items() if entry.partition("_")[0] == "theta"}
        if not trained:
            raise ValueError(
                f"trainable must be False for {function!r}: only maps with coefficients can be "
                "trained, such as Temperature, Vector, Matrix, Logistic and Beta with "
                "inference='map'"
            )
    return _class()(function, torch.get_default_dtype() if dtype is None else dtype, trained)


def _flat(arrays: Mapping[str, AnyArray], before: str = "") -> Iterator[tuple[str, AnyArray]]:
    for name, values in arrays.items():
        if isinstance(values, Mapping):
            yield from _flat(values, f"{before}{name}{_SEPARATOR}")
        else:
            yield f"{before}{name}", values


def __getattr__(name: str) -> type:
    if name == "CalibratorModule":
        return _class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
