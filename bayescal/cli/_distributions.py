"""The distributions that a prior on the command line may name, and arithmetic on them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple


class Argument(NamedTuple):
    """Name of an argument, whether it must be positive, and its default if it has one."""

    name: str
    positive: bool = False
    default: float | None = None
    required: bool = True


class Entry(NamedTuple):
    """Name of the class in NumPyro, and its arguments in order."""

    numpyro: str
    arguments: tuple[Argument, ...]


_LOC, _SCALE = Argument("loc"), Argument("scale", positive=True)
_RATE, _CONCENTRATION = Argument("rate", positive=True), Argument("concentration", positive=True)

DISTRIBUTIONS: dict[str, Entry] = {
    "uniform": Entry("Uniform", (Argument("low"), Argument("high"))),
    "normal": Entry("Normal", (_LOC, _SCALE)),
    "halfnormal": Entry("HalfNormal", (_SCALE,)),
    "lognormal": Entry("LogNormal", (_LOC, _SCALE)),
    "gamma": Entry("Gamma", (_CONCENTRATION, _RATE)),
    "inversegamma": Entry("InverseGamma", (_CONCENTRATION, _RATE)),
    "exponential": Entry("Exponential", (_RATE,)),
    "beta": Entry(
        "Beta",
        (Argument("concentration1", positive=True), Argument("concentration0", positive=True)),
    ),
    "cauchy": Entry("Cauchy", (_LOC, _SCALE)),
    "halfcauchy": Entry("HalfCauchy", (_SCALE,)),
    "studentt": Entry(
        "StudentT",
        (
            Argument("df", positive=True),
            Argument("loc", default=0.0, required=False),
            Argument("scale", positive=True, default=1.0, required=False),
        ),
    ),
    "truncatednormal": Entry(
        "TruncatedNormal",
        (_LOC, _SCALE, Argument("low", required=False), Argument("high", required=False)),
    ),
}


@dataclass(frozen=True)
class Scaled:
    """A distribution times ``scale`` plus ``shift``."""

    name: str
    arguments: tuple[tuple[str, float], ...]
    shift: float = 0.0
    scale: float = 1.0

    def __neg__(self) -> Scaled:
        return replace(self, shift=-self.shift, scale=-self.scale)

    def to_numpyro(self) -> Any:
        """Return the NumPyro distribution."""
        import numpyro.distributions as dist

        base = getattr(dist, DISTRIBUTIONS[self.name].numpyro)(**dict(self.arguments))
        if self.shift == 0 and self.scale == 1:
            return base
        move = dist.transforms.AffineTransform(self.shift, self.scale, domain=base.support)
        return dist.TransformedDistribution(base, move)


Value = float | Scaled


def add(left: Value, right: Value) -> Value:
    """Return the sum of two numbers or of a number and a distribution."""
    if isinstance(left, Scaled):
        left, right = right, left
    if isinstance(left, Scaled):
        raise ValueError("a distribution can be added to a number, not to another distribution")
    if isinstance(right, Scaled):
        return replace(right, shift=_finite(right.shift + left))
    return _finite(left + right)


def multiply(left: Value, right: Value) -> Value:
    """Return the product of two numbers or of a number and a distribution."""
    if isinstance(left, Scaled):
        left, right = right, left
    if isinstance(left, Scaled):
        raise ValueError("a distribution can be multiplied by a number, not by another one")
    if isinstance(right, Scaled):
        scale = _finite(right.scale * left)
        if scale == 0:
            raise ValueError("a distribution must not be multiplied by 0")
        return replace(right, shift=_finite(right.shift * left), scale=scale)
    return _finite(left * right)


def build(name: str, positional: list[float], named: dict[str, float]) -> Scaled:
    """Return a distribution, or raise ValueError if the arguments do not fit."""
    arguments = DISTRIBUTIONS[name].arguments
    names = [argument.name for argument in arguments]
    shown = [a.name if a.required else f"[{a.name}]" for a in arguments]
    usage = f"{name}({', '.join(shown)})"
    if len(positional) > len(arguments):
        raise ValueError(f"{usage} has {len(arguments)} arguments, got {len(positional)}")
    values = dict(zip(names, positional, strict=False))
    for key, value in named.items():
        if key not in names:
            raise ValueError(f"{usage} has no argument {key!r}")
        if key in values:
            raise ValueError(f"argument {key!r} of {usage} is given twice")
        values[key] = value
    missing = [a.name for a in arguments if a.required and a.name not in values]
    if missing:
        raise ValueError(f"{usage} lacks {', '.join(missing)}")
    for argument in arguments:
        if argument.default is not None:
            values.setdefault(argument.name, argument.default)
        value = values.get(argument.name, 1.0)
        _finite(value)
        if argument.positive and value <= 0:
            raise ValueError(f"{argument.name} of {usage} must be positive, got {value:g}")
    if values.get("low", -math.inf) >= values.get("high", math.inf):
        raise ValueError(
            f"low must be below high in {usage}, got {values['low']:g} and {values['high']:g}"
        )
    return Scaled(name, tuple(values.items()))


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("numbers must be finite")
    return value
