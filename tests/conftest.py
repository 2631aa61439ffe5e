"""Settings and fixtures of all tests: strict JAX, no display, and optional real data."""

import os
from importlib.metadata import version

# Workers share the processor, so linear algebra and OpenMP (scikit-learn, PyTorch) get one thread
# each. Their threads busy-wait: t-SNE of 200 points takes ten times as long next to another
# process. The variables are read when these libraries are first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Most of the time is compilation, and much of that optimizes machine code, fuses operations, and
# splits code into parts that compile in parallel, which does not help when other tests keep the
# processor busy. User-defined flags are kept, even empty ones, which compile everything as users
# do.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
    # Later versions abort on this unknown flag.
    + " --xla_cpu_use_fusion_emitters=false"
    * (tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11)),
)

import contextlib
import ctypes
import gc
import importlib.util
import logging
import shutil
import sys
import tempfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import jax
import matplotlib
import pytest

# Array shapes are checked wherever jaxtyping is installed, in modules that are imported later. CI
# disables these checks for slow tests, where they take a tenth of the time.
CHECKS_SHAPES = (
    importlib.util.find_spec("jaxtyping") and "BAYESCAL_TESTS_SKIP_SHAPES" not in os.environ
)
if CHECKS_SHAPES:
    from tests import shape_checks

    shape_checks.install()

ROOT = Path(__file__).resolve().parents[1]

# Files in which few slow tests, or their shared fixtures, take 20 s or more: the longest first.
LONG = [
    ROOT / name
    for name in (
        "tests/test_notebooks.py",
        "benchmarks/tests/test_reproduction.py",
        "benchmarks/tests/test_networks.py",
        "tests/inference/test_coverage.py",
        "tests/test_real_scores.py",
        "tests/test_synthetic_study.py",
        "tests/inference/test_hosts.py",
        "tests/inference/test_devices.py",
    )
]

# Tests of which .ci/run records no branches: long ones, all but ten of whose branches are taken by
# other tests, too.
NOT_RECORDED = [
    ROOT / name
    for name in (
        "benchmarks",
        "tests/frozen",
        "tests/test_adapters.py",
        "tests/test_architecture.py",
        "tests/test_docs.py",
        "tests/test_import.py",
        "tests/test_notebooks.py",
        "tests/test_truth.py",
        "tests/calibrators/test_hostile.py",
        "tests/inference/test_interpolate.py",
        "tests/plots/test_reliability_curves.py",
        "tests/regression/test_cross_validation.py",
        "tests/regression/test_fit.py",
        "tests/regression/test_heavy_tails.py",
        "tests/smoothing/test_kernels.py",
    )
]

#: A type checker reads this file; it is not run.
collect_ignore = ["typed_user.py"]

# The processes of one run share compiled programs in a folder that is deleted after the run:
# workers and subprocesses read the environment, and this process its configuration.
OWN_CACHE = None
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    OWN_CACHE = tempfile.mkdtemp(prefix="bayescal-tests-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = OWN_CACHE
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
    jax.config.update("jax_compilation_cache_dir", OWN_CACHE)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)

# Set at import, so that doctests of the package run under the same rules as the tests.
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_enable_x64", False)
matplotlib.use("Agg")

# First calls compile, so examples have no time limit. With CI set, every run is deterministic.
hypothesis.settings.register_profile(
    "bayescal", deadline=None, print_blob=True, derandomize="CI" in os.environ
)
hypothesis.settings.load_profile("bayescal")


def pytest_unconfigure() -> None:
    """Remove the cache that this process created; workers of a parallel run create none."""
    if OWN_CACHE is not None:
        shutil.rmtree(OWN_CACHE, ignore_errors=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    which = "run at most this many {}: always the same, but any of them"
    parser.addoption("--tests", type=int, help=f"of each file {which.format('tests')}")
    parser.addoption("--cases", type=int, help=f"of each parametrized test {which.format('cases')}")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name cases of bytes by their parameter: bytes may hold a time, and workers must agree."""
    return argname if isinstance(val, bytes) else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Count the calls whose shapes are checked anew, and skip tests that need missing libraries.

    Their ``parity`` marker names the libraries. If $BAYESCAL_REQUIRE_PARITY is set, they fail.
    """
    if CHECKS_SHAPES:
        shape_checks.start_test()
    needed = {name for marker in item.iter_markers("parity") for name in marker.args}
    absent = sorted(name for name in needed if importlib.util.find_spec(name) is None)
    if absent:
        end = pytest.fail if os.environ.get("BAYESCAL_REQUIRE_PARITY") else pytest.skip
        end(f"{', '.join(absent)} is not installed (see the dependency group parity)")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Turn off the recording of branches for some tests; it takes half as long as the tests."""
    recorded = not any(item.path.is_relative_to(path) for path in NOT_RECORDED)
    if recorded or "COVERAGE_PROCESS_START" not in os.environ:
        return (yield)
    # Programs that the test starts read these variables.
    variables = {name: os.environ.pop(name) for name in list(os.environ) if "COVERAGE_" in name}
    recorder = sys.gettrace()
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(recorder)
        os.environ.update(variables)


def choose(names: Iterable[str], most: int | None) -> list[str]:
    """Choose at most ``most`` names, pseudo-randomly but always the same ones."""
    return sorted(names, key=lambda name: (zlib.crc32(name.encode()), name))[:most]


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Sort long test files first, so that no process ends with one, and mark slow examples.

    Tests of benchmarks are marked as slow in benchmarks/tests/conftest.py.
    """
    for item in items:
        if item.path.is_relative_to(ROOT / "benchmarks"):
            item.add_marker("slow")
    yield  # Other hooks first deselect tests by marker.
    most_tests, most_cases = config.getoption("--tests"), config.getoption("--cases")
    if most_tests or most_cases:
        files: defaultdict[Path, defaultdict[str, list[str]]]
        files = defaultdict(lambda: defaultdict(list))
        for item in items:
            files[item.path][item.nodeid.partition("[")[0]].append(item.nodeid)
        kept = {item.nodeid for item in items if item.get_closest_marker("all_cases")}
        for path, tests in files.items():
            # Keep all docstring examples of the package.
            chosen = choose(tests, most_tests if path.name.startswith("test_") else None)
            kept |= {case for name in chosen for case in choose(tests[name], most_cases)}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
        items[:] = [item for item in items if item.nodeid in kept]
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    positions = {path: number for number, path in enumerate(LONG)}
    items.sort(key=lambda item: (positions.get(item.path, len(LONG)), -slow[item.path]))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Collect tests without garbage collection, since they are millions of permanent objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def x64() -> Iterator[None]:
    """Enable 64-bit JAX for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    """Close the figures that a test left open."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


# Resident memory in MB when it was last released, and the number of tests in this process.
RESIDENT = [0]
TESTS = [0]
# In MB. Releasing memory takes at least half a second, and cleared programs compile again.
KEPT, GROWTH, MAX_RESIDENT = 1500, 500, 2000


def resident_memory() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1000


def give_back() -> None:
    """Return freed memory to the system; after compiling, the C library keeps a gigabyte of it."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    RESIDENT[0] = resident_memory()


@pytest.fixture(autouse=True)
def _bounded_memory() -> Iterator[None]:
    """Release free memory, and clear compiled programs once there are very many.

    Each program takes memory maps, of which Linux allows 65,530 per process.
    """
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return
    TESTS[0] += 1
    many = TESTS[0] % 50 == 0 and maps.read_bytes().count(b"\n") > 30_000
    if many or resident_memory() > max(KEPT, RESIDENT[0] + GROWTH):
        give_back()
        if many or RESIDENT[0] > MAX_RESIDENT:
            jax.clear_caches()
            give_back()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real data: $BAYESCAL_DATA, or ../shared/data next to the repository."""
    folder = Path(os.environ.get("BAYESCAL_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is not a folder (set BAYESCAL_DATA to one)")
    return folder


@pytest.fixture(scope="session")
def arena(shared_data: Path) -> Path:
    """Return the folder of real scores with the losses of peers, next to that of real data."""
    folder = shared_data.parent / "arena"
    if not folder.is_dir():
        pytest.skip(f"no arena: {folder} is not a folder")
    return folder


@pytest.fixture
def compilations(caplog: pytest.LogCaptureFixture) -> Callable[[], Any]:
    """Return a context that collects the names of the programs compiled in it."""

    @contextlib.contextmanager
    def collect() -> Iterator[list[str]]:
        result: list[str] = []
        caplog.clear()
        with caplog.at_level(logging.WARNING), jax.log_compiles():
            yield result
        messages = [record.getMessage() for record in caplog.records]
        result += [m.split(" with ")[0] for m in messages if m.startswith("Compiling ")]
        caplog.clear()

    return collect
