"""Priors written as text: ``gaussian:mu0=uniform(-2.5, 0),mu1=1+beta(2, 5),sigma=1``.

A small recursive parser; nothing is ever evaluated as Python. The grammar, loosely::

    prior  = family ":" parameter "=" sum { "," parameter "=" sum }
    sum    = product { ("+" | "-") product }
    product = factor { ("*" | "/") factor }
    factor = number | ["-" | "+"] factor | "(" sum ")" | distribution "(" arguments ")"

A sum or product holds at most one distribution: shifted and scaled by numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from bayescal.cli._distributions import DISTRIBUTIONS, Scaled, Value, build, combine
from bayescal.cli._errors import CommandError

if TYPE_CHECKING:
    from bayescal.models import Prior

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<sign>[-+*/(),=:])|(?P<bad>\S))"
)
_DEEPEST = 50

# Names of the parameters of each family: every alternative is a full set.
_FAMILIES = {
    "gaussian": (("mu0", "mu1", "sigma"), ("mu0", "mu1", "sigma0", "sigma1")),
    "beta": (("alpha0", "beta0", "alpha1", "beta1"),),
}


class _Token(NamedTuple):
    kind: str
    text: str
    position: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else repr(self.text)


def parse_prior(text: str) -> Prior:
    """Return the prior that the text describes.

    Raises
    ------
    CommandError
        Says what is wrong, and at which character.
    """
    return _Parser(text).prior()


class _Parser:
    """Reads tokens from left to right."""

    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text))
        self.index = 0
        self.depth = 0

    @property
    def next(self) -> _Token:
        return self.tokens[self.index]

    def take(self) -> _Token:
        token = self.next
        self.index += 1
        return token

    def accept(self, *texts: str) -> _Token | None:
        return self.take() if self.next.text in texts else None

    def expect(self, wanted: str, what: str) -> _Token:
        """Take a token of that text or kind."""
        if wanted not in (self.next.text, self.next.kind):
            _fail(f"expected {what}, found {self.next}", self.next)
        return self.take()

    def prior(self) -> Prior:
        family = self.expect("name", "a family such as gaussian")
        alternatives = _FAMILIES.get(family.text.lower())
        if alternatives is None:
            known = " or ".join(_FAMILIES)
            _fail(f"unknown family {family.text!r}; known: {known}", family)
        self.expect(":", "':' after the family")
        allowed = list(dict.fromkeys(name for names in alternatives for name in names))
        given: dict[str, Value] = {}
        while True:
            name = self.expect("name", "the name of a parameter")
            if name.text not in allowed:
                _fail(
                    f"unknown parameter {name.text!r} of the family {family.text}; "
                    f"known: {', '.join(allowed)}",
                    name,
                )
            if name.text in given:
                _fail(f"parameter {name.text!r} is given twice", name)
            self.expect("=", f"'=' after {name.text!r}")
            given[name.text] = self.sum()
            if self.next.kind == "end":
                break
            self.expect(",", f"',' or the end after the value of {name.text!r}")
        if set(given) not in [set(names) for names in alternatives]:
            sets = " or ".join(", ".join(names) for names in alternatives)
            raise CommandError(
                f"--prior: the family {family.text} must have the parameters {sets}; "
                f"got {', '.join(given)}"
            )
        return _make(family.text.lower(), given)

    def sum(self) -> Value:
        self.depth += 1
        if self.depth > _DEEPEST:
            _fail("too many nested brackets", self.next)
        value = self.product()
        while sign := self.accept("+", "-"):
            value = _combine(sign, value, self.product())
        self.depth -= 1
        return value

    def product(self) -> Value:
        value = self.factor()
        while sign := self.accept("*", "/"):
            value = _combine(sign, value, self.factor())
        return value

    def factor(self) -> Value:
        negative = False
        while sign := self.accept("-", "+"):
            negative ^= sign.text == "-"
        value = self.atom()
        return -value if negative else value

    def atom(self) -> Value:
        token = self.take()
        if token.kind == "number":
            if math.isinf(float(token.text)):
                _fail("numbers must be finite", token)
            return float(token.text)
        if token.text == "(":
            value = self.sum()
            self.expect(")", "')' to close the bracket")
            return value
        if token.kind == "name":
            return self.distribution(token)
        _fail(f"expected a number or a distribution, found {token}", token)

    def distribution(self, name: _Token) -> Value:
        """Read the arguments of a distribution."""
        key = name.text.lower().replace("_", "")
        if key not in DISTRIBUTIONS:
            _fail(f"unknown distribution {name.text!r}; known: {', '.join(DISTRIBUTIONS)}", name)
        self.expect("(", f"'(' after {name.text!r}")
        positional: list[float] = []
        named: dict[str, float] = {}
        while not self.accept(")"):
            if positional or named:
                self.expect(",", f"',' or ')' after an argument of {name.text}")
            start = self.next
            is_named = start.kind == "name" and self.tokens[self.index + 1].text == "="
            if is_named:
                self.index += 2
                if start.text in named:
                    _fail(f"argument {start.text!r} is given twice", start)
            elif named:
                _fail("an argument without name must not follow one with a name", start)
            value = self.sum()
            if not isinstance(value, float):
                _fail(f"arguments of {name.text} must be numbers", start)
            if is_named:
                named[start.text] = value
            else:
                positional.append(value)
        try:
            return build(key, positional, named)
        except ValueError as error:
            _fail(str(error), name)


def _tokens(text: str) -> Iterator[_Token]:
    """Cut the text into tokens; the last one is the end."""
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        token = _Token(kind, match[kind], match.start(kind))
        if kind == "bad":
            _fail(f"unexpected {token}", token)
        yield token
    yield _Token("end", "", len(text.rstrip()))


def _combine(sign: _Token, left: Value, right: Value) -> Value:
    try:
        return combine(sign.text, left, right)
    except ValueError as error:
        _fail(str(error), sign)


def _fail(message: str, token: _Token) -> NoReturn:
    raise CommandError(f"--prior: {message} (character {token.position + 1})")


def _make(family: str, given: dict[str, Value]) -> Prior:
    from bayescal.models import BetaPrior, GaussianPrior

    values = {n: v.to_numpyro() if isinstance(v, Scaled) else v for n, v in given.items()}
    try:
        return {"gaussian": GaussianPrior, "beta": BetaPrior}[family](**values)
    except (TypeError, ValueError) as error:
        raise CommandError(f"--prior: {error}") from error
