"""Stores: complete blocks or none, whatever happens to processes, files and folders."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import transforms

import bayescal as bc
from bayescal._core.files import partial_path
from bayescal.sweeps import _run, _store
from bayescal.sweeps._block import Result, Task
from bayescal.sweeps._cells import describe, digest_of
from bayescal.sweeps._identity import digest_of_value
from bayescal.sweeps._methods import as_recipes
from bayescal.sweeps._store import Store

PRIOR = bc.GaussianPrior(mu0=dist.Uniform(-1, 0), mu1=dist.Uniform(0, 1), sigma=1.0)
QUESTION = {"method": "m", "data sets": [0, 3]}
ARRAYS = {"values": np.array([[0.5, np.nan], [1.0, -np.inf]]), "status": np.array([0, 2], np.int8)}

# Runs 20 blocks of two data sets, prints how many are done, continues at each input line or at the
# end of the input, then saves the numbers.
SCRIPT = """
import sys
import numpy as np
import numpyro
import numpyro.distributions as dist
import bayescal as bc
from bayescal.sweeps import _run
_run.SIZE = 2
prior = bc.GaussianPrior(mu0=dist.Uniform(-1, 0), mu1=dist.Uniform(0, 1), sigma=1.0)

def progress(name, done, total):
    print(done, flush=True)
    sys.stdin.readline()

found = bc.sweep(
    prior, n_train=8, methods=["optimal"], num_datasets=40, n_test=40,
    store=sys.argv[1], progress=progress,
)
np.save(sys.argv[2], found.value.values)
"""


def sweep(**options: Any) -> np.ndarray:
    given = {"n_train": 8, "methods": ["optimal"], "num_datasets": 6, "n_test": 40, **options}
    return bc.sweep(PRIOR, **{"progress": False, **given}).value.values


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """Use blocks of four, and return the list of blocks that are computed from now on."""
    monkeypatch.setattr(_run, "SIZE", 4)
    recorded, real = [], _run.run_block

    def counted(task: Task) -> Any:
        recorded.append(task)
        return real(task)

    monkeypatch.setattr(_run, "run_block", counted)
    return recorded


def start_process(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )


def sweep_without_interruption(
    monkeypatch: pytest.MonkeyPatch, store: Path | None = None
) -> np.ndarray:
    monkeypatch.setattr(_run, "SIZE", 2)
    return sweep(num_datasets=40, store=store)


@pytest.mark.slow
def test_killed_runs_go_on_where_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(0)
    done = 0
    for _ in range(3):
        until = done + chance.randint(1, 5)
        with start_process(tmp_path / "store", tmp_path / "unused.npy") as process:
            assert process.stdin is not None and process.stdout is not None
            steps: list[int] = []
            for line in iter(process.stdout.readline, ""):
                steps.append(int(line))
                process.stdin.write("\n")
                if steps[-1] >= until:
                    time.sleep(chance.uniform(0, 0.01))
                    process.kill()
                    steps += [int(rest) for rest in process.stdout.read().split()]
                    break
        assert process.returncode == -signal.SIGKILL
        # Reported blocks are still stored, and few blocks are in progress.
        assert done <= steps[0] <= done + 1
        done = steps[-1]
    assert 3 <= done <= 18
    steps = []
    monkeypatch.setattr(_run, "SIZE", 2)
    result = sweep(
        num_datasets=40, store=tmp_path / "store", progress=lambda *a: steps.append(a[1])
    )
    assert done <= steps[0] <= done + 1
    np.testing.assert_array_equal(result, sweep_without_interruption(monkeypatch))


@pytest.mark.slow
def test_two_runs_on_one_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = sweep_without_interruption(monkeypatch)
    store = tmp_path / "store"
    processes = [start_process(store, tmp_path / f"{i}.npy") for i in range(2)]
    for i, process in enumerate(processes):
        process.communicate()
        assert process.returncode == 0
        np.testing.assert_array_equal(np.load(tmp_path / f"{i}.npy"), expected)
    # All files exist and are complete, and there are no others.
    assert len(list(store.iterdir())) == 20
    monkeypatch.setattr(_run, "run_block", lambda task: pytest.fail("a block was lost"))
    np.testing.assert_array_equal(sweep_without_interruption(monkeypatch, store), expected)


def test_what_is_there_is_not_done_again(tmp_path: Path, tasks: list[Task]) -> None:
    def computed(**options: Any) -> list[tuple[int, int, list[str]]]:
        tasks.clear()
        result = sweep(store=tmp_path, **options)
        keys = sorted((task.cell.n_train, task.first, list(task.recipes)) for task in tasks)
        np.testing.assert_array_equal(result, sweep(**options))
        return keys

    every = [(8, 0, ["optimal"]), (8, 4, ["optimal"])]
    assert computed() == every
    assert computed() == []
    # More methods.
    both = ["optimal", "normal"]
    assert computed(methods=both) == [(8, 0, ["normal"]), (8, 4, ["normal"])]
    # More data sets, or fewer: blocks are whole.
    assert computed(methods=both, num_datasets=8) == []
    assert computed(num_datasets=3) == []
    assert computed(num_datasets=9) == [(8, 8, ["optimal"])]
    # More sizes.
    assert computed(n_train=[8, 9], num_datasets=4) == [(9, 0, ["optimal"])]
    # Another name for a method is no new computation.
    assert computed(methods={"ours": "optimal"}) == []
    assert computed(key=1) == every
    assert computed(metrics=["brier_score"]) == every


def test_kinds_of_keys_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = []

    def none(task: Task) -> Result:
        key = jax.random.wrap_key_data(task.key, impl=task.key_impl)
        kinds.append(str(jax.random.key_impl(key)))
        shape = task.size, len(task.metrics)
        return Result({"optimal": np.zeros(shape)}, {"optimal": np.zeros(task.size, int)}, {})

    monkeypatch.setattr(_run, "run_block", none)
    # Keys of these kinds have equal numbers.
    for kind in ("rbg", "unsafe_rbg", "rbg"):
        sweep(store=tmp_path, key=jax.random.key(0, impl=kind))
    assert kinds == ["rbg", "unsafe_rbg"]


def shift_method(by: Any) -> Callable[..., np.ndarray]:
    return lambda x, y, points: points - np.sum(by)


def test_functions_that_differ_are_told_apart(tmp_path: Path, tasks: list[Task]) -> None:
    def result(methods: dict[str, Any]) -> list[float]:
        values = sweep(store=tmp_path, methods=methods, num_datasets=4, metrics=["log_loss"])
        return list(values.mean((0, 1, 2, 4, 5)))

    def again(x: np.ndarray, y: np.ndarray, points: np.ndarray, deep: bool = True) -> np.ndarray:
        return again(x, y, points, False) if deep else points

    made = {str(by): shift_method(by) for by in (0.0, 0.5, 1.0)}
    arrays = {
        f"array {last}": shift_method(np.r_[np.zeros(2000), last, np.zeros(2000)])
        for last in (2, 3)
    }
    codes = {"a": lambda x, y, points: points + 4, "b": lambda x, y, points: points + 5}
    parts = {f"part {by}": functools.partial(lambda by, x, y, p: p + by, by) for by in (6, 7)}
    methods = {**made, **arrays, **codes, **parts, "again": again}
    first = result(methods)
    assert len(set(first)) == 9  # ``again`` is a shift by zero
    tasks.clear()
    assert result(methods) == first
    assert result({"0.5": shift_method(0.5)}) == first[1:2]
    assert not tasks


class Line:
    """A line with a prediction method."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def predict(self, x: np.ndarray, y: np.ndarray, points: np.ndarray) -> np.ndarray:
        return points * len(self.parts)

    def other(self, x: np.ndarray, y: np.ndarray, points: np.ndarray) -> np.ndarray:
        return points


def method_with_value(value: Any) -> Callable[..., Any]:
    """Return a function that carries a value."""
    return lambda x, y, points: (points, value)[0]


def test_what_functions_carry_is_told_apart() -> None:
    for value, *others in (
        ({3, 1, 2}, {1, 2}, [3, 1, 2]),
        (frozenset("ab"), frozenset("ac")),
        (np, os),
        (Line, Store),
    ):
        first, second = (digest_of_value(method_with_value(value)) for _ in "ab")
        assert first == second
        assert first not in [digest_of_value(method_with_value(other)) for other in others]
    first, second = (digest_of_value(Line(1, "a").predict) for _ in "ab")
    assert first == second
    for other in (Line(2, "a").predict, Line(1, "a").other):
        assert first != digest_of_value(other)


def test_options_that_hold_arrays_or_distributions_differ_by_their_content() -> None:
    def option(scale: float) -> object:
        return describe(bc.LogisticRegression(coef_prior=dist.Normal(0.0, scale)).get_params())

    described = [describe({"b": value, "a": (1, None)}) for value in (complex(1), complex(2))]
    assert described == [{"a": [1, None], "b": repr(complex(v))} for v in (1, 2)]
    assert option(1.0) == option(1.0) != option(5.0)  # whatever their addresses
    assert str(option(1.0)) == str(option(1.0)) and " at 0x" not in str(option(1.0))
    numbers = np.zeros(2000)
    for position, step in ((3, 1e-12), (1000, 1.0)):
        other = numbers.copy()
        other[position] = step
        assert describe(numbers) == describe(numbers.copy()) != describe(other)
        assert describe(jax.numpy.asarray(numbers)) != describe(jax.numpy.asarray(other))
    inner = [describe([bc.LogisticRegression(coef_prior=dist.Normal(0.0, s))]) for s in (1.0, 2.0)]
    assert inner[0] != inner[1]


class Unpicklable:
    """A value that cannot be pickled."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __reduce__(self) -> str:
        raise TypeError("it cannot be pickled")


def test_options_are_not_confused_if_one_gets_the_address_of_another() -> None:
    # Each value is gone when the next one is made, which usually gets its address.
    def power(exponent: int) -> object:
        return describe({"func": lambda x: x**exponent})

    described = [power(exponent) for exponent in (1, 2, 3, 1)]
    assert described[0] == described[3]
    assert described[0] != described[1] != described[2] != described[0]
    seeds = [describe(np.random.RandomState(seed)) for seed in (0, 1, 0)]
    assert seeds[0] == seeds[2] != seeds[1]
    sizes = [describe(Unpicklable(size)) for size in range(20)]
    assert len({str(size) for size in sizes}) == 20
    one = Unpicklable(1)
    before = describe(one)
    assert describe(one) == before
    one.size = 2
    assert describe(one) != before


def test_objects_that_are_called_differ_by_their_code() -> None:
    def method(slope: float) -> object:
        class Line:
            def __call__(self, x: np.ndarray, y: np.ndarray, points: np.ndarray) -> np.ndarray:
                return slope * points

            def __reduce__(self) -> Any:
                return str, ("all are pickled alike",)

        return as_recipes({"line": Line()})["line"].identity

    assert method(1.0) == method(1.0) != method(2.0)


def test_mixtures_of_other_distributions_are_told_apart() -> None:
    def prior(mean: float) -> bc.models.Prior:
        parts = [dist.Normal(mean, 0.1), dist.StudentT(3.0)]
        mixture = dist.MixtureGeneral(dist.Categorical(np.array([0.5, 0.5])), parts)
        return bc.GaussianPrior(mu0=mixture, mu1=1.0, sigma=1.0)

    assert digest_of(prior(1.0)) == digest_of(prior(1.0)) != digest_of(prior(2.0))


def test_transforms_inside_others_are_told_apart() -> None:
    def digest(transform: transforms.Transform) -> str:
        base = dist.Beta(2.0, 2.0)
        mean = dist.TransformedDistribution(base, transform)
        return digest_of(bc.GaussianPrior(mu0=mean, mu1=1.0, sigma=1.0))

    kinds = transforms.ExpTransform, transforms.SigmoidTransform, transforms.SoftplusTransform
    for wrap in (
        lambda kind: transforms.ComposeTransform([kind()]),
        lambda kind: kind().inv,
        lambda kind: transforms.ComposeTransform([transforms.ComposeTransform([kind()])]),
        lambda kind: transforms.IndependentTransform(kind(), 0),
    ):
        digests = [digest(wrap(kind)) for kind in kinds]
        assert len({*digests}) == 3
        assert digests == [digest(wrap(kind)) for kind in kinds]


def test_models_that_differ_are_told_apart() -> None:
    def prior(scale: float) -> bc.models.Prior:
        def model() -> None:
            numpyro.sample("mu0", dist.Normal(-1.0, scale))
            numpyro.sample("mu1", dist.Normal(1.0, scale))
            numpyro.deterministic("sigma", 1.0)

        return bc.GaussianPrior(model=model)

    assert digest_of(prior(1.0)) == digest_of(prior(1.0)) != digest_of(prior(2.0))


@dataclass(frozen=True)
class Model:
    """A model with a parameter."""

    mean: float

    def __call__(self) -> None:
        numpyro.sample("mu0", dist.Normal(self.mean, 1.0))
        numpyro.deterministic("mu1", 1.0)
        numpyro.deterministic("sigma", 1.0)


def test_models_without_a_source_are_told_apart() -> None:
    def typed(mean: float) -> Callable[[], None]:
        names: dict[str, Any] = {"numpyro": numpyro, "dist": dist}
        lines = (
            f"numpyro.sample('mu0', dist.Normal({mean}, 1.0))",
            *(f"numpyro.deterministic('{name}', 1.0)" for name in ("mu1", "sigma")),
        )
        exec("def model():\n    " + "\n    ".join(lines), names)
        return names["model"]

    for make in (Model, typed):
        first, same, other = (digest_of(bc.GaussianPrior(model=make(m))) for m in (0.0, 0.0, 5.0))
        assert first == same != other


def test_models_of_one_source_are_told_apart() -> None:
    def model(mean: float) -> None:
        Model(mean)()

    def decorated(mean: float, twice: bool) -> Callable[[], None]:
        @functools.wraps(model)
        def once_more() -> None:
            model(2 * mean)

        @functools.wraps(model)
        def once() -> None:
            model(mean)

        return once_more if twice else once

    def digests() -> list[str]:
        lambdas = [lambda: model(0.0), lambda: model(5.0)]  # on one line
        models = [*lambdas, decorated(1.0, True), decorated(1.0, False)]
        return [digest_of(bc.GaussianPrior(model=each)) for each in models]

    assert digests() == digests()
    assert len(set(digests())) == 4


def test_open_seeds_are_set() -> None:
    from sklearn.tree import ExtraTreeClassifier

    tree = ExtraTreeClassifier(max_depth=1)
    options = {"methods": {"tree": tree}, "num_datasets": 4, "metrics": ["log_loss"]}
    np.testing.assert_array_equal(sweep(**options), sweep(**options))


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "of the user").touch()


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(_truncate, id="truncated"),
        pytest.param(_flip, id="flipped"),
        pytest.param(lambda path: path.write_bytes(b""), id="empty"),
        pytest.param(
            lambda path: shutil.copy(next(p for p in path.parent.glob("*.npz") if p != path), path),
            id="of another question",
        ),
        pytest.param(_to_folder, id="a folder"),
    ],
)
def test_broken_blocks_are_done_again(
    harm: Callable[[Path], None], tmp_path: Path, tasks: list[Task]
) -> None:
    expected = sweep(store=tmp_path)
    first, second = sorted(tmp_path.glob("*.npz"))
    harm(first)
    tasks.clear()
    np.testing.assert_array_equal(sweep(store=tmp_path), expected)
    assert len(tasks) == 1
    # The file is repaired, and a valuable file that was in its place is kept.
    np.testing.assert_array_equal(sweep(store=tmp_path), expected)
    assert len(tasks) == 1
    assert first.is_file() and second.is_file()
    if harm is _to_folder:
        assert len(list(tmp_path.glob("*.aside/of the user"))) == 1


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(QUESTION, ARRAYS)
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    # The file is a NumPy archive.
    np.testing.assert_equal(dict(np.load(file)), ARRAYS)
    np.testing.assert_equal(store.get(QUESTION), ARRAYS)
    chance = random.Random(0)
    for at in range(0, len(content), 3):
        changed = bytearray(content)
        changed[at] ^= 1 << chance.randrange(8)
        file.write_bytes(changed)
        assert store.get(QUESTION) is None
        file.write_bytes(content[:at])
        assert store.get(QUESTION) is None
    file.write_bytes(content + b"0")
    assert store.get(QUESTION) is None
    assert store.get({**QUESTION, "data sets": [3, 3]}) is None


def test_leftovers_of_killed_runs(tmp_path: Path, tasks: list[Task]) -> None:
    old, young = (partial_path(tmp_path / f"{digit * 32}.npz") for digit in "01")
    foreign = tmp_path / ".mine.partial"
    for path in (old, young, foreign):
        path.write_bytes(b"half of it")
    for path, hours in ((old, 25), (young, 23), (foreign, 1000)):
        at = time.time() - hours * 3600
        os.utime(path, (at, at))
    result = sweep(store=tmp_path)
    assert not old.exists()
    # It may belong to a running process.
    assert young.exists() and foreign.exists()
    np.testing.assert_array_equal(result, sweep())


@pytest.fixture
def read_only() -> Iterator[Path]:
    """Provide a folder that this process cannot write; root becomes another user for that."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield folder
        finally:
            os.seteuid(user)
            folder.chmod(0o755)


def test_read_only_folder(read_only: Path) -> None:
    store = Store(read_only)
    assert store.get(QUESTION) is None
    for call in (
        store.prepare,
        lambda: store.put(QUESTION, ARRAYS),
        lambda: Store(read_only / "inside"),
    ):
        with pytest.raises(PermissionError, match=f"files can be written: .*{read_only}"):
            call()


def test_folder_is_tried_before_anything_is_computed(
    tmp_path: Path, tasks: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Store) -> None:
        raise PermissionError("as above")

    expected = sweep(store=tmp_path / "full")
    tasks.clear()
    monkeypatch.setattr(Store, "prepare", fail)
    with pytest.raises(PermissionError, match="as above"):
        sweep(store=tmp_path / "new")
    assert not tasks
    # A finished store is only read.
    monkeypatch.setattr(Store, "put", lambda *a: pytest.fail("it was written to"))
    result = sweep(store=tmp_path / "full", num_datasets=5)
    np.testing.assert_array_equal(result, expected[..., :5, :])
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="it is a file"):
        sweep(store=tmp_path / "file")


def test_full_folder(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(QUESTION, ARRAYS)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="store must be a folder in which files can be written"):
            store.put(QUESTION, ARRAYS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    # The old file is complete, and the partial file is gone.
    np.testing.assert_equal(store.get(QUESTION), ARRAYS)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("stored", [True, False])
def test_files_that_another_run_has_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    """Check that the arrays of another run are used if an open file cannot be replaced."""
    store = Store(tmp_path)
    if stored:
        store.put(QUESTION, ARRAYS)

    @contextlib.contextmanager
    def busy(path: Path) -> Iterator[Path]:
        begun = partial_path(path)
        yield begun
        begun.unlink()
        raise PermissionError(13, "in use", str(path))

    monkeypatch.setattr(_store, "write_atomically", busy)
    if stored:
        store.put(QUESTION, ARRAYS)
        np.testing.assert_equal(store.get(QUESTION), ARRAYS)
    else:
        with pytest.raises(PermissionError, match="in use"):
            store.put(QUESTION, ARRAYS)
        assert store.get(QUESTION) is None
