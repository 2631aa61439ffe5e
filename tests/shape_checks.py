"""Check array shapes in annotations (``bayescal/_core/shapes.py``) in each call of a test run.

An import hook decorates all functions with such annotations, including nested functions. In one
call, axes with one name have one size in all arguments, in the fields of named tuples among them,
and in the result. Calls with equal types and shapes are checked once. Comparing takes time, too, so
each test checks the first ``FIRST`` calls of a function, and then one call in ``EACH``.
"""

import ast
import functools
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, FunctionType, ModuleType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin

import jax
import jaxtyping
import numpy as np

KINDS = {name: getattr(jaxtyping, name) for name in ("Bool", "Float", "Int", "Shaped")}
HAS_SHAPE = re.compile(rf"\b({'|'.join(KINDS)})\[")
MODULE = "bayescal._core.shapes"
FIRST, EACH = 30, 16
DECORATOR = "__check_shapes__"


class ShapeError(AssertionError):
    """Raised if an argument or a result does not have the shape of its annotation.

    It is not a TypeError or ValueError, which tests of users' errors expect.
    """


class Shapes(NamedTuple):
    """Annotations of arguments and the result, or of fields, by name."""

    hints: dict[str, Any]
    #: Names with axes such as ``1+features``, which are checked once the other sizes are known.
    computed: frozenset[str]


class Part(NamedTuple):
    """A value that is checked."""

    computed: bool
    name: str
    value: object
    hint: Any


def read_shapes(annotations: dict[str, Any], names: dict[str, Any]) -> Shapes:
    """Evaluate the string annotations that declare a shape."""
    texts = {name: getattr(text, "__forward_arg__", text) for name, text in annotations.items()}
    texts = {n: t for n, t in texts.items() if isinstance(t, str) and HAS_SHAPE.search(t)}
    hints = {name: eval(text, names, dict(KINDS)) for name, text in texts.items()}
    return Shapes(hints, frozenset(n for n, t in texts.items() if "+" in t or "-" in t))


@functools.cache
def shapes_of_fields(kind: type) -> Shapes:
    """Read the shapes of a named tuple's fields; other tuples have none."""
    is_ours = kind.__module__.startswith("bayescal.") and hasattr(kind, "_fields")
    return read_shapes(kind.__annotations__ if is_ours else {}, vars(sys.modules[kind.__module__]))


def fits(value: object, hint: Any) -> bool:
    """Check whether a value has the type and, in the current context, the shape of a hint."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, part) for part in parts)
    if origin is tuple and isinstance(value, tuple):
        if parts[-1] is ...:
            return all(fits(entry, parts[0]) for entry in value)
        return len(value) == len(parts) and all(map(fits, value, parts))
    if hint is float:
        hint = int | float
    elif isinstance(value, np.generic):
        value = np.asarray(value)  # Annotations count NumPy scalars as arrays.
    elif hasattr(value, "shape") and not isinstance(value, np.ndarray | jax.Array):
        return True  # Functions for two libraries also take lazy arrays and PyTorch tensors.
    return not isinstance(hint, type | UnionType) or isinstance(value, hint)


def parts_of(name: str, value: object, shapes: Shapes, key: str) -> Iterator[Part]:
    """Yield a value and, for named tuples, its fields recursively, if they are checked."""
    if key in shapes.hints:
        yield Part(key in shapes.computed, name, value, shapes.hints[key])
    if isinstance(value, tuple):
        fields = shapes_of_fields(type(value))
        for field, entry in zip(getattr(value, "_fields", range(len(value))), value, strict=True):
            yield from parts_of(f"{name}.{field}", entry, fields, field)


def check(function: str, values: dict[str, Any], shapes: Shapes) -> None:
    """Raise an error if the values do not have the annotated shapes."""
    parts = [part for name in values for part in parts_of(name, values[name], shapes, name)]
    with jaxtyping.jaxtyped("context"):
        for _, name, value, hint in sorted(parts, key=lambda part: part.computed):
            if not fits(value, hint):
                known = ", ".join(f"{part.name}: {describe(part.value)}" for part in parts)
                raise ShapeError(f"{name} of {function} should be {hint}; got {known}")


def describe(value: object) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return type(value).__name__ if shape is None else f"{dtype}{list(shape)}"


#: Whether values of a type are arrays; asking JAX for each value would take longer than most calls.
ARE_ARRAYS: dict[type, bool] = {}


def identify(value: Any) -> object:
    """Return a key for the type of a value and, if it is checked, its shape."""
    kind = type(value)
    is_array = ARE_ARRAYS.get(kind)
    if is_array is None:
        is_array = ARE_ARRAYS[kind] = isinstance(value, np.ndarray | np.generic | jax.Array)
    if is_array:
        return kind, value.shape, value.dtype
    return (kind, *map(identify, value)) if issubclass(kind, tuple) else kind


class Checks:
    """The checks for calls of one function."""

    def __init__(self, function: FunctionType) -> None:
        self.function = f"{function.__module__}.{function.__qualname__}"
        self.source = function.__annotations__, function.__globals__
        code = function.__code__
        self.names = code.co_varnames[: code.co_argcount]
        self.passed: set[object] = set()
        self.calls = 0  # in this test

    @functools.cached_property
    def shapes(self) -> Shapes:
        return read_shapes(*self.source)

    def values(self, args: Sequence[Any], options: dict[str, Any]) -> dict[str, Any]:
        return {**dict(zip(self.names, args, strict=False)), **options}

    def arguments(self, args: Sequence[Any], options: dict[str, Any]) -> object:
        key = (*map(identify, args), *options, *map(identify, options.values()))
        if key not in self.passed:
            check(self.function, self.values(args, options), self.shapes)
            self.passed.add(key)
        return key

    def result(self, given: object, args: Any, options: dict[str, Any], result: Any) -> None:
        if "return" not in self.shapes.hints and not isinstance(result, tuple):
            return
        key = given, identify(result)
        if key not in self.passed:
            check(self.function, {**self.values(args, options), "return": result}, self.shapes)
            self.passed.add(key)


#: Cached by code object, because nested functions are created again and again.
KNOWN: dict[CodeType, Checks] = {}


def start_test() -> None:
    """Count calls from zero."""
    for checks in KNOWN.values():
        checks.calls = 0


def check_shapes(function: FunctionType) -> FunctionType:
    """Decorate a function to check its calls."""
    checks = KNOWN.get(function.__code__)
    if checks is None:
        checks = KNOWN[function.__code__] = Checks(function)
    before, after = checks.arguments, checks.result
    # Variables of the closure, because the code below runs with the globals of another module.
    first, each = FIRST, EACH

    def call(*args: Any, **options: Any) -> Any:
        checks.calls += 1
        if checks.calls > first and checks.calls % each:
            return function(*args, **options)
        given = before(args, options)
        result = function(*args, **options)
        after(given, args, options, result)
        return result

    # With the globals of the original module, doctest treats it as defined there, and warnings as a
    # frame of the package.
    closure: Any = call.__closure__
    checked = FunctionType(call.__code__, function.__globals__, closure=closure)
    return functools.update_wrapper(checked, function)


class Expand(ast.NodeTransformer):
    """Replaces the names of aliases, texts that declare a shape, by what they stand for."""

    def visit_Module(self, node: ast.Module) -> ast.AST:
        self.aliases: dict[str, str] = {}
        for part in node.body:
            match part:
                case ast.AnnAssign(ast.Name(name), value=ast.Constant(str(text))):
                    if HAS_SHAPE.search(text):
                        self.aliases[name] = text
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self.aliases or isinstance(node.ctx, ast.Store):
            return node
        shape = ast.parse(self.aliases[node.id], mode="eval").body
        return ast.fix_missing_locations(ast.copy_location(shape, node))


class Decorate(ast.NodeTransformer):
    """Adds the decorator below others, which compile or cache the function."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        annotations = [node.returns, *(argument.annotation for argument in arguments)]
        if any(HAS_SHAPE.search(ast.unparse(part)) for part in annotations if part is not None):
            line, column = node.lineno, node.col_offset
            location = {"lineno": line, "end_lineno": line, "col_offset": column}
            node.decorator_list.append(ast.Name(DECORATOR, ast.Load(), **location))
        return node


class Loader(SourceFileLoader):
    """Decorates the functions of modules that import annotation names."""

    def get_code(self, fullname: str) -> CodeType | None:
        source = self.get_data(self.path)
        if MODULE.encode() not in source:
            return super().get_code(fullname)
        tree = Decorate().visit(Expand().visit(ast.parse(source)))
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        setattr(module, DECORATOR, check_shapes)
        super().exec_module(module)


class Finder:
    """Finds modules of bayescal like Python does, and loads them with checks."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith("bayescal."):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = Loader(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """Check all modules of bayescal that are imported from now on.

    Finders that are already installed, such as that of ``benchmarks/mutants.py``, come first.
    """
    finders: list[Any] = sys.meta_path
    if Finder not in finders:
        finders.insert(finders.index(PathFinder), Finder)
