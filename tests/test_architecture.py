"""The structure of the package: layers, public names, imports without side effects, short files.

Each rule is a function that returns violations as lines of text. It is tested on the package, where
it must find none, and on a small bad package, where it must find some.
"""

import ast
import functools
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "bayescal"

# Lowest first. A module imports only from its own or a lower layer.
LAYERS = (
    "_core",
    "data",
    "models",
    "inference",
    "posterior",
    "smoothing",
    "regression",
    "metrics",
    "compare",
    "calibrators",
    "deployment",
    "losses",
    "datasets",
    "monitoring",
    "plots",
    "evaluation",
    "sweeps",
    "adapters",
    "cli",
)
# Used by other packages of the project but not by users: like _core, they list no public names.
INTERNAL = ("bayescal.data", "bayescal.regression")
# The package's __init__ and the entry points of the program may import everything.
UNRESTRICTED = ("__init__", "__main__", "cli")
MAX_LINES, MAX_MODULES = 600, 14
HEAVY = (
    "arviz",
    "flax",
    "jinja2",
    "matplotlib",
    "numpyro",
    "orbax",
    "pandas",
    "scipy",
    "sklearn",
    "xarray",
)
GLOBAL_CHANGES = (
    "jax.config.update",
    "numpy.random.seed",
    "numpyro.enable_x64",
    "numpyro.set_host_device_count",
    "numpyro.set_platform",
    "random.seed",
)
# Functions whose whole purpose, according to their name, is a setting that the user requests.
ASKED_FOR = ("_core/execution/compilation.py",)
WARNING_FILTERS = ("warnings.filterwarnings", "warnings.simplefilter")


# --- layers -------------------------------------------------------------------------------------


def source_files(package: Path) -> list[Path]:
    files = sorted(package.rglob("*.py"))
    if not files:
        raise FileNotFoundError(f"no Python files under {package}")
    return files


@functools.cache
def parse_text(text: str, filename: str) -> ast.Module:
    return ast.parse(text, filename=filename)


def parse(path: Path) -> ast.Module:
    return parse_text(path.read_text(encoding="utf-8"), str(path))


def layer_of_file(package: Path, path: Path) -> str:
    return path.relative_to(package).with_suffix("").parts[0]


def imported_names(tree: ast.AST, parents: list[str]) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of every import, anywhere in the file.

    ``parents`` is the package that contains the file, one part per entry.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = parents[: len(parents) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"
        elif isinstance(node, ast.Call) and node.args:
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else None
            name = function.id if isinstance(function, ast.Name) else name
            target = node.args[0]
            if name in ("import_module", "__import__") and isinstance(target, ast.Constant):
                yield node.lineno, str(target.value)


def imports(package: Path) -> Iterator[tuple[Path, str, list[str], str]]:
    """Yield each internal import: file, location, containing package, name."""
    for path in source_files(package):
        relative = path.relative_to(package.parent)
        parents = list(relative.parent.parts)
        for line, name in imported_names(parse(path), parents):
            if name.split(".")[0] == package.name:
                yield path, f"{relative}:{line}", parents, name


def layer_faults(package: Path) -> list[str]:
    """Find imports from a higher layer."""
    layers = {layer_of_file(package, path) for path in source_files(package)}
    strangers = layers - {*LAYERS, *UNRESTRICTED}
    faults = [f"{layer!r} is no layer; place it in LAYERS" for layer in sorted(strangers)]
    for path, where, _, name in imports(package):
        layer, target = layer_of_file(package, path), f"{name}.".split(".")[1]
        if layer in UNRESTRICTED or layer in strangers:
            continue
        if target not in LAYERS:
            faults.append(f"{where}: {name} is taken from the top of the package")
        elif LAYERS.index(target) > LAYERS.index(layer):
            faults.append(f"{where}: {layer} imports from {target}, a higher layer")
    return faults


# --- walls --------------------------------------------------------------------------------------


def wall_faults(package: Path) -> list[str]:
    """Find imports of private modules or names from outside their package."""
    faults = []
    for _, where, parents, name in imports(package):
        parts = name.split(".")
        private = [i for i, part in enumerate(parts) if part[0] == "_" and part != "_core"]
        if not private:
            continue
        if parents[: private[0]] != parts[: private[0]]:
            faults.append(f"{where}: {name} is private to {'.'.join(parts[: private[0]])}")
    return faults


def cycle_faults(package: Path) -> list[str]:
    """Find import cycles, including imports for types only or within functions."""

    def module(path: Path) -> str:
        name = ".".join(path.relative_to(package.parent).with_suffix("").parts)
        return name.removesuffix(".__init__")

    graph: dict[str, set[str]] = {module(path): set() for path in source_files(package)}
    for path, _, _, name in imports(package):
        while name not in graph:
            name = name.rpartition(".")[0]
        graph[module(path)].add(name)
    graph = {name: targets - {name} for name, targets in graph.items()}
    # A module that imports no remaining module is in no cycle, nor is one that none imports.
    while ends := {m for m in graph if not graph[m] or not any(m in t for t in graph.values())}:
        graph = {m: targets - ends for m, targets in graph.items() if m not in ends}
    return [f"{m} is in a circle with {', '.join(sorted(graph[m]))}" for m in sorted(graph)]


# --- public names -------------------------------------------------------------------------------


def public_modules(name: str) -> list[ModuleType]:
    """Import the public modules, whose dotted names have no part that begins with _.

    Users import the contents of other modules within top-level packages from the package; those
    that its ``__all__`` names are public.
    """

    def fail(module: str) -> None:
        raise ImportError(f"cannot import {module}") from sys.exception()

    package = importlib.import_module(name)
    result = pkgutil.walk_packages(package.__path__, f"{name}.", onerror=fail)
    names = [
        entry.name
        for entry in result
        if "._" not in entry.name
        and entry.name.count(".") == 1
        and not entry.name.startswith(INTERNAL)
    ]
    modules = [package, *(importlib.import_module(entry) for entry in names)]
    listed = [getattr(module, key, None) for module in modules for key in listed_names(module)]
    return [*modules, *(m for m in listed if isinstance(m, ModuleType) and m not in modules)]


def is_own(value: Any, module: ModuleType) -> bool:
    """Check whether a module defines a value, or for a package, whether it comes from within."""
    if not callable(value):
        return False
    origin = getattr(value, "__module__", None) or ""
    if hasattr(module, "__path__"):
        return origin.split(".")[0] == module.__name__.split(".")[0]
    return origin == module.__name__


def listed_names(module: ModuleType) -> list[str]:
    """Return ``__all__``, or for a package without one, the names imported as ``X as X``."""
    if hasattr(module, "__all__") or not hasattr(module, "__path__"):
        return getattr(module, "__all__", [])
    tree = parse(Path(module.__file__ or ""))
    aliases = [a for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names]
    return [alias.name for alias in aliases if alias.asname == alias.name]


def all_faults(name: str) -> list[str]:
    """Find public names missing from ``__all__``, and listed names that do not exist."""
    faults = []
    for module in public_modules(name):
        defined = {key for key, value in vars(module).items() if is_own(value, module)}
        public = {key for key in defined if not key.startswith("_")}
        listed = listed_names(module)
        faults += [
            f"{module.__name__}: {key} is not in __all__" for key in sorted(public - set(listed))
        ]
        faults += [
            f"{module.__name__}: {key} is in __all__ and does not exist"
            for key in listed
            if not hasattr(module, key)
        ]
        if len(set(listed)) < len(listed):
            faults.append(f"{module.__name__}: __all__ names something twice")
    return faults


def has_own_docstring(value: Any) -> bool:
    doc = getattr(value, "__doc__", None) or ""
    if isinstance(value, type):  # data classes and named tuples put their signature there
        return bool(doc.strip()) and not doc.startswith(f"{value.__name__}(")
    return bool(doc.strip()) and doc != type(value).__doc__


def listed_objects(modules: list[ModuleType]) -> Iterator[tuple[str, Any]]:
    """Yield each existing entry of ``__all__`` once: functions, classes and modules."""
    seen = set()
    for module in modules:
        for key in listed_names(module):
            value = getattr(module, key, None)
            if (callable(value) or isinstance(value, ModuleType)) and id(value) not in seen:
                seen.add(id(value))
                yield f"{module.__name__}.{key}", value


def docstring_faults(name: str) -> list[str]:
    """Find listed functions, classes, modules and public methods without a docstring."""
    modules = public_modules(name)
    faults = [f"{module.__name__} has no docstring" for module in modules if not module.__doc__]
    for label, value in listed_objects(modules):
        if not has_own_docstring(value):
            faults.append(f"{label} has no docstring")
        if not isinstance(value, type):
            continue
        for key, member in vars(value).items():
            is_method = inspect.isroutine(member) or isinstance(member, property)
            if is_method and not key.startswith("_") and not inspect.getdoc(getattr(value, key)):
                faults.append(f"{label}.{key} has no docstring, nor inherits one")
    return faults


def example_faults(name: str) -> list[str]:
    """Find public functions without an example, in the package and its listed modules."""
    package = importlib.import_module(name)
    listed = [getattr(package, key, None) for key in getattr(package, "__all__", [])]
    modules = [package, *(module for module in listed if isinstance(module, ModuleType))]
    return [
        f"{label} has no example (>>>) in its docstring"
        for label, value in listed_objects(modules)
        if not isinstance(value, type | ModuleType) and ">>>" not in (value.__doc__ or "")
    ]


# --- what an import does ------------------------------------------------------------------------

PROBE = """
import importlib, json, random, sys, warnings
import jax, jax.numpy, numpy

def snapshot():
    generator, keys, *rest = numpy.random.get_state()
    return {
        "the configuration of JAX": {key: repr(value) for key, value in jax.config.values.items()},
        "the filters of warnings": [repr(entry) for entry in warnings.filters],
        "the random state of Python": repr(random.getstate()),
        "the random state of NumPy": [generator, keys.tobytes().hex(), repr(rest)],
    }

name, *heavy = sys.argv[1:]
loaded, before = set(sys.modules), snapshot()
package = importlib.import_module(name)
# All that it imports when its names are used, but calibrators.
for module in (*getattr(package, "_NAMES", ()), *getattr(package, "_PUBLIC_MODULES", ())):
    importlib.import_module(f"{name}.{module}")
after = snapshot()
faults = [f"import {name} changes {key}" for key in before if before[key] != after[key]]
faults += [f"import {name} imports {key}" for key in heavy if key in set(sys.modules) - loaded]
print(json.dumps(faults))
"""


def import_faults(package: Path) -> list[str]:
    """Return what importing the package changes or loads besides it, in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, package.name, *HEAVY],
        cwd=package.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        return [f"import {package.name} fails:\n{done.stderr}"]
    return json.loads(done.stdout)


# --- files and calls ----------------------------------------------------------------------------


def length_faults(package: Path) -> list[str]:
    """Find files that are too long."""
    faults = []
    for path in source_files(package):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines >= MAX_LINES:
            relative = path.relative_to(package.parent)
            faults.append(f"{relative} has {lines} lines, {MAX_LINES} or more; split it")
    return faults


def folder_faults(package: Path) -> list[str]:
    """Find folders with too many modules."""
    counts = Counter(p.parent for p in source_files(package) if p.name != "__init__.py")
    return [
        f"{folder.relative_to(package.parent)} has {count} modules, more than {MAX_MODULES}"
        for folder, count in sorted(counts.items())
        if count > MAX_MODULES
    ]


def class_name_faults(package: Path) -> list[str]:
    """Find classes of different modules that have the same name."""
    modules = defaultdict(list)
    for path in source_files(package):
        for node in parse(path).body:
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(str(path.relative_to(package.parent)))
    return [
        f"{name} is a class of {' and of '.join(paths)}; give each its own name"
        for name, paths in sorted(modules.items())
        if len(paths) > 1
    ]


def calls(tree: ast.Module) -> Iterator[tuple[ast.Call, str, bool]]:
    """Yield calls with the full dotted name, and whether they run at import."""
    aliases = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module:
            aliases |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}

    def dotted(node: ast.expr) -> str:
        if isinstance(node, ast.Attribute):
            return f"{dotted(node.value)}.{node.attr}"
        return aliases.get(node.id, node.id) if isinstance(node, ast.Name) else ""

    def visit(node: ast.AST, at_import: bool) -> Iterator[tuple[ast.Call, str, bool]]:
        if isinstance(node, ast.Call):
            yield node, dotted(node.func), at_import
        later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, at_import and not later)

    return visit(tree, True)


def jax_faults(package: Path) -> list[str]:
    """Find modules that import JAX directly, which only ``_core/lazy.py`` may."""
    faults = []
    for path in source_files(package):
        for node in parse(path).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [name for _, name in imported_names(node, ["", ""])]
                if any(name.split(".")[0] == "jax" for name in names):
                    location = f"{path.relative_to(package.parent)}:{node.lineno}"
                    faults.append(f"{location} imports JAX; take it from _core/lazy.py")
    return faults


def call_faults(package: Path) -> list[str]:
    """Find calls that change global settings or warning filters at import, or print."""
    faults = []
    for path in source_files(package):
        relative = path.relative_to(package.parent)
        may_print = layer_of_file(package, path) in ("cli", "__main__")
        for node, name, at_import in calls(parse(path)):
            where = f"{relative}:{node.lineno}"
            if name in GLOBAL_CHANGES and str(path.relative_to(package)) not in ASKED_FOR:
                faults.append(f"{where}: {name} changes a setting of the whole process")
            elif name in WARNING_FILTERS and at_import:
                faults.append(f"{where}: {name} runs at import")
            elif name == "print" and not may_print:
                faults.append(f"{where}: print outside the command line")
    return faults


#: Docstring sections with entries, and the first line of an entry.
ENTRIES = re.compile(r"^(?:Parameters|Attributes)\n-+\n((?:.*\n)*?)(?=\S.*\n---|\Z)", re.MULTILINE)
ENTRY = re.compile(r"[\w*]+(, [\w*]+)*( : .*)?")


def entry_faults(package: Path) -> list[str]:
    """Find parameters and attributes that have a description but no name."""
    kinds = ast.ClassDef, ast.FunctionDef
    return [
        f"{path.relative_to(package.parent)}: {node.name}: {line!r} is neither entry nor text"
        for path in source_files(package)
        for node in ast.walk(parse(path))
        if isinstance(node, kinds)
        for section in ENTRIES.findall((ast.get_docstring(node) or "") + "\n")
        for line in section.splitlines()
        if line.strip() and not line.startswith(" ") and not ENTRY.fullmatch(line)
    ]


# --- the package keeps the rules ----------------------------------------------------------------


def test_package_keeps_rules_of_files() -> None:
    rules = (
        layer_faults,
        wall_faults,
        cycle_faults,
        length_faults,
        folder_faults,
        class_name_faults,
        call_faults,
        entry_faults,
        import_faults,
        jax_faults,
    )
    faults = [fault for rule in rules for fault in rule(PACKAGE)]
    parse_text.cache_clear()
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("rule", [all_faults, docstring_faults, example_faults])
def test_package_keeps_rule_of_names(rule: Callable[[str], list[str]]) -> None:
    faults = rule(PACKAGE.name)
    assert not faults, "\n".join(faults)


# --- the rules find what is wrong ---------------------------------------------------------------

NAME = "example_of_faults"


@pytest.fixture
def write_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[dict[str, str]], Path]]:
    """Return a function that writes an importable package from paths and texts."""

    def write(files: dict[str, str]) -> Path:
        package = tmp_path / NAME
        for path, text in {"__init__.py": '"""Example."""\n', **files}.items():
            (package / path).parent.mkdir(parents=True, exist_ok=True)
            (package / path).write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        return package

    yield write
    for name in [key for key in sys.modules if key.split(".")[0] == NAME]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (f"from {NAME}.posterior import x", "models imports from posterior"),
        (f"import {NAME}.metrics.ece", "models imports from metrics"),
        (f"from {NAME} import plots", "models imports from plots"),
        ("from ..inference import x", "models imports from inference"),
        ("from .. import inference", "models imports from inference"),
        ("def f():\n    from ..cli import main", "models imports from cli"),
        (f"import importlib\nimportlib.import_module('{NAME}.cli')", "models imports from cli"),
        (f"import {NAME}", "taken from the top"),
        (f"from {NAME} import posterior_predict", "taken from the top"),
        (f"from {NAME}.unknown import x", "taken from the top"),
        (f"from {NAME}._core import x", None),
        ("from .._core.numerics import x", None),
        ("from .beta import x", None),
        ("from . import beta", None),
        ("import jax.numpy as jnp", None),
    ],
)
def test_layers_are_seen(write_package: Any, line: str, fault: str | None) -> None:
    package = write_package({"models/__init__.py": "", "models/gaussian.py": line})
    faults = layer_faults(package)
    assert len(faults) == (fault is not None), faults
    assert fault is None or fault in faults[0]


def test_layers_know_single_files_init_and_strangers(write_package: Any) -> None:
    package = write_package(
        {
            "__init__.py": "from .plots import x",
            "__main__.py": f"import {NAME}",
            "cli.py": f"import {NAME}",
            "posterior.py": "from .plots import x",
            "models/__init__.py": "from ..inference import x",
            "stranger.py": "",
        }
    )
    faults = "\n".join(layer_faults(package))
    assert "posterior imports from plots" in faults
    assert "models imports from inference" in faults
    assert "'stranger' is no layer" in faults
    assert faults.count("\n") == 2


@pytest.mark.parametrize(
    ("file", "line", "fault"),
    [
        ("plots/a.py", f"from {NAME}.models._prior import x", "private to NAME.models"),
        ("plots/a.py", "from ..models import _prior", "private to NAME.models"),
        (
            "plots/a.py",
            "def f():\n    from ..models.deep import _a",
            "private to NAME.models.deep",
        ),
        ("models/a.py", f"import {NAME}.models.deep._a", "private to NAME.models.deep"),
        ("plots/a.py", f"from {NAME}.models.a import _x", "private to NAME.models.a"),
        ("models/a.py", f"from {NAME}.models._prior import x", None),
        ("models/deep/b.py", f"from {NAME}.models._prior import x", None),
        ("plots/a.py", f"from {NAME}._core.files import x", None),
        ("plots/a.py", f"from {NAME}.models import x\nfrom _thread import y", None),
    ],
)
def test_walls_are_seen(write_package: Any, file: str, line: str, fault: str | None) -> None:
    faults = wall_faults(write_package({file: line}))
    assert len(faults) == (fault is not None), faults
    assert fault is None or fault.replace("NAME", NAME) in faults[0]


@pytest.mark.parametrize(
    ("files", "circle"),
    [
        ({"a.py": "from .b import x", "b.py": "def f():\n    from .a import y"}, "ab"),
        (
            {
                "a.py": "from . import b",
                "b.py": "if TYPE_CHECKING:\n    from .c import x",
                "c.py": f"import {NAME}.a",
                "d.py": "from .a import y",
            },
            "abc",
        ),
        ({"p/__init__.py": "from .q import x", "p/q.py": "from . import y"}, ["p", "p.q"]),
        (
            {"a.py": "from . import b, c", "b.py": "from .c import x", "c.py": ""},
            "",
        ),
        ({"p/__init__.py": "from .q import x", "p/q.py": "from . import r", "p/r.py": ""}, ""),
    ],
)
def test_circles_are_seen(
    write_package: Any, files: dict[str, str], circle: str | list[str]
) -> None:
    faults = cycle_faults(write_package(files))
    assert [fault.split()[0] for fault in faults] == [f"{NAME}.{module}" for module in circle]


def test_incomplete_all_is_seen(write_package: Any) -> None:
    write_package(
        {
            "__init__.py": f'"""D."""\nfrom {NAME}.a import f, g\n__all__ = ["f", "gone"]',
            "a.py": '"""D."""\nfrom json import dumps\n__all__ = ["f", "f"]\n'
            "def f(): ...\ndef g(): ...\nclass H: ...\ndef _p(): ...\n",
            "b.py": '"""D."""\ndef f(): ...\n',
            "_c.py": "def f(): ...\n",
            "d/__init__.py": f'"""D."""\nfrom {NAME}.d import inner, other\n__all__ = ["inner"]\n',
            "d/inner.py": '"""D."""\ndef f(): ...\n',
            "d/other.py": '"""D."""\ndef f(): ...\n',
        }
    )
    assert sorted(all_faults(NAME)) == [
        f"{NAME}.a: H is not in __all__",
        f"{NAME}.a: __all__ names something twice",
        f"{NAME}.a: g is not in __all__",
        f"{NAME}.b: f is not in __all__",
        f"{NAME}.d.inner: f is not in __all__",
        f"{NAME}: g is not in __all__",
        f"{NAME}: gone is in __all__ and does not exist",
    ]


def test_missing_docstrings_are_seen(write_package: Any) -> None:
    write_package(
        {
            "a.py": "from dataclasses import dataclass\nfrom functools import partial\n"
            '__all__ = ["Base", "Child", "Data", "LIMIT", "f", "g"]\nLIMIT = 3\n'
            "@dataclass\nclass Data:\n    x: int\n"
            'class Base:\n    """D."""\n    def told(self):\n        """D."""\n'
            'class Child(Base):\n    """D."""\n    def told(self): ...\n    def untold(self): ...\n'
            "    @property\n    def value(self): ...\ndef f(): ...\ng = partial(f)\n",
        }
    )
    assert sorted(docstring_faults(NAME)) == [
        f"{NAME}.a has no docstring",
        f"{NAME}.a.Child.untold has no docstring, nor inherits one",
        f"{NAME}.a.Child.value has no docstring, nor inherits one",
        f"{NAME}.a.Data has no docstring",
        f"{NAME}.a.f has no docstring",
        f"{NAME}.a.g has no docstring",
    ]


def test_entries_without_names_are_seen(write_package: Any) -> None:
    text = (
        "Parameters\n    ----------\n    x, *rest : int\n        A.\n    {}The end.\n\n    Raises"
    )
    text = f'def f():\n    """D.\n\n    {text}\n    ------\n    ValueError\n    """\n'
    package = write_package({"a.py": text.format(""), "b.py": text.format("    ")})
    fault = "f: 'The end.' is neither entry nor text"
    assert entry_faults(package) == [f"{NAME}/a.py: {fault}"]


def test_missing_examples_are_seen(write_package: Any) -> None:
    write_package(
        {
            "__init__.py": f"from {NAME} import a, b\nfrom {NAME}.b import f, g\n"
            '__all__ = ["a", "f", "g"]\n',
            "a.py": '__all__ = ["h"]\ndef h(): """D."""\n',
            "b.py": '__all__ = ["f", "g", "k"]\n'
            'def f(): """D."""\ndef g(): """D.\n\n>>> 1\n1\n"""\ndef k(): """D."""\n',
        }
    )
    missing = "has no example (>>>) in its docstring"
    assert sorted(example_faults(NAME)) == [f"{NAME}.a.h {missing}", f"{NAME}.f {missing}"]


def test_effects_of_import_are_seen(write_package: Any) -> None:
    text = (
        "import random, warnings, jax, numpy, scipy.stats, xarray\n"
        "jax.config.update('jax_enable_x64', True)\nwarnings.simplefilter('ignore')\n"
        "random.seed(0)\nnumpy.random.seed(0)\n"
    )
    assert import_faults(write_package({"__init__.py": text})) == [
        f"import {NAME} changes the configuration of JAX",
        f"import {NAME} changes the filters of warnings",
        f"import {NAME} changes the random state of Python",
        f"import {NAME} changes the random state of NumPy",
        f"import {NAME} imports pandas",
        f"import {NAME} imports scipy",
        f"import {NAME} imports xarray",
    ]


def test_failing_import_is_seen(write_package: Any) -> None:
    (fault,) = import_faults(write_package({"__init__.py": "1 / 0"}))
    assert "ZeroDivisionError" in fault


def test_long_file_is_seen(write_package: Any) -> None:
    package = write_package({"a.py": "x = 1\n" * MAX_LINES, "b.py": "x = 1\n" * (MAX_LINES - 1)})
    faults = length_faults(package)
    assert faults == [f"{NAME}/a.py has {MAX_LINES} lines, {MAX_LINES} or more; split it"]


def test_full_folder_is_seen(write_package: Any) -> None:
    names = ["__init__", *(f"m{i}" for i in range(MAX_MODULES))]
    package = write_package({f"plots/{name}.py": "" for name in names})
    assert not folder_faults(package)
    (package / "plots" / "another.py").touch()
    count = MAX_MODULES + 1
    assert folder_faults(package) == [f"{NAME}/plots has {count} modules, more than {MAX_MODULES}"]


def test_two_classes_of_one_name_are_seen(write_package: Any) -> None:
    package = write_package({"a.py": "class A: ...\nclass B: ...", "b.py": "class A: ..."})
    (fault,) = class_name_faults(package)
    assert fault == f"A is a class of {NAME}/a.py and of {NAME}/b.py; give each its own name"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("import jax\ndef f():\n    jax.config.update('x', 1)", "jax.config.update"),
        ("from jax import config as c\nc.update('x', 1)", "jax.config.update"),
        ("import numpy as np\ndef f():\n    np.random.seed(0)", "numpy.random.seed"),
        ("import warnings\nwarnings.filterwarnings('ignore')", "runs at import"),
        ("from warnings import simplefilter as s\nclass A:\n    s('ignore')", "runs at import"),
        ("import warnings\nif True:\n    warnings.simplefilter('ignore')", "runs at import"),
        ("def f():\n    print(1)", "print outside"),
        ("import warnings\ndef f():\n    warnings.simplefilter('ignore')", None),
        ("def f(settings, console):\n    settings.config.update(x=1)\n    console.print(1)", None),
        ("'''Doc.\n\n>>> print(1)\n'''", None),
    ],
)
def test_forbidden_calls_are_seen(write_package: Any, text: str, fault: str | None) -> None:
    faults = call_faults(write_package({"models.py": text, "cli.py": "print(1)"}))
    assert len(faults) == (fault is not None), faults
    assert fault is None or fault in faults[0]


@pytest.mark.parametrize("line", ["import jax", "import jax.numpy as jnp", "from jax import jit"])
def test_import_of_jax_is_seen(write_package: Any, line: str) -> None:
    text = f"import json\nfrom .lazy import jax\ndef f():\n    import jax.tree\n{line}\n"
    (fault,) = jax_faults(write_package({"a.py": text}))
    assert fault == f"{NAME}/a.py:5 imports JAX; take it from _core/lazy.py"


def test_no_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no Python files"):
        layer_faults(tmp_path)
