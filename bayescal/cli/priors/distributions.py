"""Distributions in priors on the command line, and arithmetic with them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from numpyro.distributions import Distribution


class DistributionEntry(NamedTuple):
    """NumPyro class of a distribution, its required and optional arguments, and their defaults."""

    numpyro: str
    required: tuple[str, ...]
    optional: tuple[tuple[str, float | None], ...] = ()


_POSITIVE = {"scale", "rate", "concentration", "concentration0", "concentration1", "df"}

DISTRIBUTIONS: dict[str, DistributionEntry] = {
    "uniform": DistributionEntry("Uniform", ("low", "high")),
    "normal": DistributionEntry("Normal", ("loc", "scale")),
    "halfnormal": DistributionEntry("HalfNormal", ("scale",)),
    "lognormal": DistributionEntry("LogNormal", ("loc", "scale")),
    "gamma": DistributionEntry("Gamma", ("concentration", "rate")),
    "inversegamma": DistributionEntry("InverseGamma", ("concentration", "rate")),
    "exponential": DistributionEntry("Exponential", ("rate",)),
    "beta": DistributionEntry("Beta", ("concentration1", "concentration0")),
    "cauchy": DistributionEntry("Cauchy", ("loc", "scale")),
    "halfcauchy": DistributionEntry("HalfCauchy", ("scale",)),
    "studentt": DistributionEntry("StudentT", ("df",), (("loc", 0.0), ("scale", 1.0))),
    "truncatednormal": DistributionEntry(
        "TruncatedNormal", ("loc", "scale"), (("low", None), ("high", None))
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

    def to_numpyro(self) -> Distribution:
        """Make the NumPyro distribution."""
        import numpyro.distributions as dist

        base = getattr(dist, DISTRIBUTIONS[self.name].numpyro)(**dict(self.arguments))
        if self.shift == 0 and self.scale == 1:
            return base
        move = dist.transforms.AffineTransform(self.shift, self.scale, domain=base.support)
        return dist.TransformedDistribution(base, move)


Value = float | Scaled


def combine(sign: str, left: Value, right: Value) -> Value:
    """Compute a sum, difference, product or quotient; at most one operand may be a distribution."""
    if sign == "/":
        if isinstance(right, Scaled) or right == 0:
            raise ValueError("division must be by a number other than 0")
        sign, right = "*", 1 / right
    elif sign == "-":
        sign, right = "+", -right
    if isinstance(left, Scaled):
        left, right = right, left
    if isinstance(left, Scaled):
        how = "added to a number, not to another distribution"
        how = how if sign == "+" else "multiplied by a number, not by another one"
        raise ValueError(f"a distribution can be {how}")
    if not isinstance(right, Scaled):
        return _finite(left + right if sign == "+" else left * right)
    if sign == "+":
        return replace(right, shift=_finite(right.shift + left))
    scale = _finite(right.scale * left)
    if scale == 0:
        raise ValueError("a distribution must not be multiplied by 0")
    return replace(right, shift=_finite(right.shift * left), scale=scale)


def build(name: str, positional: list[float], named: dict[str, float]) -> Scaled:
    """Make a distribution; raise ValueError if the arguments do not match."""
    entry = DISTRIBUTIONS[name]
    optional = dict(entry.optional)
    names = [*entry.required, *optional]
    usage = f"{name}({', '.join([*entry.required, *(f'[{argument}]' for argument in optional)])})"
    if len(positional) > len(names):
        raise ValueError(f"{usage} has {len(names)} arguments, got {len(positional)}")
    values = dict(zip(names, positional, strict=False))
    for key, value in named.items():
        if key not in names:
            raise ValueError(f"{usage} has no argument {key!r}")
        if key in values:
            raise ValueError(f"argument {key!r} of {usage} is given twice")
        values[key] = value
    missing = [argument for argument in entry.required if argument not in values]
    if missing:
        raise ValueError(f"{usage} lacks {', '.join(missing)}")
    defaults = {key: value for key, value in optional.items() if value is not None}
    values = defaults | values
    for key, value in values.items():
        if _finite(value) <= 0 and key in _POSITIVE:
            raise ValueError(f"{key} of {usage} must be positive, got {value:g}")
    if values.get("low", -math.inf) >= values.get("high", math.inf):
        raise ValueError(
            f"low must be below high in {usage}, got {values['low']:g} and {values['high']:g}"
        )
    return Scaled(name, tuple(values.items()))


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("numbers must be finite")
    return value
