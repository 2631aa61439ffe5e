"""Priors written as text: ``gaussian:mu0=uniform(-2.5, 0),mu1=1+beta(2, 5),sigma=1``.

The part after the family has the syntax of arguments in Python: numbers, distributions, and sums
and products with at most one distribution. It is never evaluated as Python.
"""

from __future__ import annotations

import ast
import warnings
from typing import TYPE_CHECKING, NoReturn

from bayescal.cli._errors import CommandError
from bayescal.cli.priors.distributions import DISTRIBUTIONS, Scaled, Value, build, combine

if TYPE_CHECKING:
    from bayescal.models import Prior

# Names of the parameters of each family: every alternative is a full set.
_FAMILIES = {
    "gaussian": (("mu0", "mu1", "sigma"), ("mu0", "mu1", "sigma0", "sigma1")),
    "beta": (("alpha0", "beta0", "alpha1", "beta1"),),
}
_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


def parse_prior(text: str) -> Prior:
    """Parse a prior; errors name the character at which the text is wrong."""
    return _make(*read_prior(text))


def read_prior(text: str) -> tuple[str, dict[str, Value]]:
    """Parse a family and its parameters, without making distributions yet."""
    head, colon, rest = text.partition(":")
    family = head.strip().lower()
    if family not in _FAMILIES:
        known = " or ".join(_FAMILIES)
        raise CommandError(f"--prior: unknown family {head.strip()!r}; known: {known}")
    if not colon:
        raise CommandError(f"--prior: expected ':' after the family {family}")
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(f"f({' '.join(rest.splitlines())})", mode="eval").body
        given = _parameters(family, tree)
    except SyntaxError as error:
        where = f" (character {len(head) + error.offset - 1})" if error.offset else ""
        raise CommandError(f"--prior: {error.msg}{where}") from None
    except ValueError as error:  # null bytes, in Python before 3.11.4
        raise CommandError(f"--prior: {error}") from None
    except (RecursionError, MemoryError):
        raise CommandError("--prior: too many nested brackets or signs") from None
    return family, given


def _fail(message: str, node: ast.expr | ast.keyword) -> NoReturn:
    raise SyntaxError(message, ("", 1, node.col_offset + 1, None))


def _parameters(family: str, tree: ast.expr) -> dict[str, Value]:
    alternatives = _FAMILIES[family]
    if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name)):
        _fail("')' closes no bracket", tree)
    for argument in tree.args:
        _fail("expected the name of a parameter and '='", argument)
    allowed = list(dict.fromkeys(name for names in alternatives for name in names))
    for keyword in tree.keywords:
        if keyword.arg not in allowed:
            known = f"of the family {family}; known: {', '.join(allowed)}"
            _fail(f"unknown parameter {keyword.arg!r} {known}", keyword)
    given = _named(tree, "parameter")
    if set(given) not in [set(names) for names in alternatives]:
        sets = " or ".join(", ".join(names) for names in alternatives)
        got = ", ".join(given) or "none"
        _fail(f"the family {family} must have the parameters {sets}; got {got}", tree)
    return given


def _named(node: ast.Call, what: str) -> dict[str, Value]:
    """Return the values of a call's keywords."""
    given: dict[str, Value] = {}
    for keyword in node.keywords:
        name = str(keyword.arg)
        if name in given:
            _fail(f"{what} {name!r} is given twice", keyword)
        given[name] = _value(keyword.value)
    return given


def _value(node: ast.expr) -> Value:
    """Return the number or distribution that an expression describes."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return float(number) if abs(number) < 1e308 else _fail("numbers must be finite", node)
        case ast.UnaryOp(op=ast.UAdd()):
            return _value(node.operand)
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand)
        case ast.BinOp() if type(node.op) in _SIGNS:
            try:
                return combine(_SIGNS[type(node.op)], _value(node.left), _value(node.right))
            except ValueError as error:
                _fail(str(error), node)
        case ast.Call(func=ast.Name(id=name)):
            return _distribution(name, node)
    _fail("expected a number, or a distribution with its arguments", node)


def _distribution(name: str, node: ast.Call) -> Scaled:
    key = name.lower().replace("_", "")
    if key not in DISTRIBUTIONS:
        _fail(f"unknown distribution {name!r}; known: {', '.join(DISTRIBUTIONS)}", node)
    values, arguments = _named(node, "argument"), (_value(argument) for argument in node.args)
    positional = [value for value in arguments if isinstance(value, float)]
    named = {key: value for key, value in values.items() if isinstance(value, float)}
    if len(positional) + len(named) < len(node.args) + len(values):
        _fail(f"arguments of {name} must be numbers", node)
    try:
        return build(key, positional, named)
    except ValueError as error:
        _fail(str(error), node)


def _make(family: str, given: dict[str, Value]) -> Prior:
    from bayescal.models import BetaPrior, GaussianPrior

    values = {n: v.to_numpyro() if isinstance(v, Scaled) else v for n, v in given.items()}
    try:
        return {"gaussian": GaussianPrior, "beta": BetaPrior}[family](**values)
    except (TypeError, ValueError) as error:
        raise CommandError(f"--prior: {error}") from error
