"""Fitted calibrators, as pure functions, in modules of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

#: Between names of arrays in arrays; buffers' names have no dots.
_IN = "__"


@cache
def _class() -> type:
    """Return the class, which is made when it is first asked for."""
    import torch  # pyright: ignore[reportMissingImports]

    class CalibratorModule(torch.nn.Module):
        """A function whose arrays are buffers, which move with it to a device and are its state."""

        def __init__(self, function: Any, dtype: Any) -> None:
            super().__init__()
            self.function = function.with_arrays({})
            self.empty = {}
            for name, own in _flat(function.arrays):
                kind = dtype if own.dtype.kind == "f" else None
                array = torch.tensor(own, dtype=kind).contiguous()
                # Files of programs cannot hold empty ones.
                if own.size:
                    self.register_buffer(name, array)
                else:
                    self.empty[name] = array

        def forward(self, scores: Any) -> Any:
            """Return calibrated probabilities."""
            arrays: dict[str, Any] = {}
            moved = {name: own.to(scores.device) for name, own in self.empty.items()}
            for name, own in (*self.named_buffers(), *moved.items()):
                *path, last = name.split(_IN)
                place = arrays
                for part in path:
                    place = place.setdefault(part, {})
                place[last] = own
            return self.function.with_arrays(arrays)(scores)

        def extra_repr(self) -> str:
            """Return what it is, as modules show it."""
            return repr(self.function)

    # So that it can be pickled.
    CalibratorModule.__qualname__ = "CalibratorModule"
    CalibratorModule.__module__ = __name__
    return CalibratorModule


def as_module(function: Any, dtype: Any = None) -> Any:
    """Return the module, with numbers of a type: by default PyTorch's own."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(f"as_module needs PyTorch: pip install torch ({error})") from error
    return _class()(function, torch.get_default_dtype() if dtype is None else dtype)


def _flat(arrays: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, own in arrays.items():
        if isinstance(own, Mapping):
            yield from _flat(own, f"{before}{name}{_IN}")
        else:
            yield f"{before}{name}", own


def __getattr__(name: str) -> type:
    if name == "CalibratorModule":
        return _class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
