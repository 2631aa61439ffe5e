"""Blocks of rows: sources, passes, threads and checkpoints."""

import threading
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

import bayescal as bc
from bayescal._core.files import partial_path
from bayescal.data.blocks.stream import Block, add, as_blocks, map_chunks

ROWS = np.arange(10.0)


def _sum(block: Block) -> dict[str, np.ndarray] | None:
    if not len(block.scores):
        return None
    return {"sum": np.sum(block.scores), "n": np.asarray(len(block.scores))}


def _times(factor: float, block: Block) -> dict[str, np.ndarray]:
    return {"sum": factor * np.sum(block.scores)}


def _number(block: Block) -> dict[str, np.ndarray]:
    return {"numbers": np.array([block.number])}


def _append(first: dict, second: dict) -> dict:
    return {"numbers": np.concatenate([first["numbers"], second["numbers"]])}


class _Own:
    """An iterator defined by a user."""

    def __init__(self, rows):
        self._rows = rows

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._rows)


def _make():
    for first in range(0, 10, 3):
        yield ROWS[first : first + 3], ROWS[first : first + 3] > 4


def test_results_are_added_and_passes_counted():
    blocks = bc.Blocks(_make)
    assert blocks.total(_sum)["sum"] == 45
    assert blocks.total(_sum)["n"] == 10
    assert blocks.passes == 2


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_the_order_of_blocks(threads):
    blocks = bc.Blocks([(ROWS,)] * 40, threads=threads)
    assert blocks.total(_number, _append)["numbers"].tolist() == [*range(40)]


def test_few_blocks_are_held_at_once():
    held, most, lock = 0, 0, threading.Lock()

    def make():
        nonlocal held, most
        for _ in range(50):
            with lock:
                held += 1
                most = max(most, held)
            yield (ROWS,)

    def work(block):
        nonlocal held
        with lock:
            held -= 1
        return _sum(block)

    bc.Blocks(make, threads=2).total(work)
    assert most <= 5


def test_empty_blocks_are_left_out():
    assert bc.Blocks([(ROWS[:0],), (ROWS,), (ROWS[:0],)]).total(_sum)["n"] == 10
    with pytest.raises(ValueError, match="must hold rows"):
        bc.Blocks([(ROWS[:0],)]).total(_sum)
    with pytest.raises(ValueError, match="must hold rows"):
        bc.Blocks([]).total(_sum)


def test_what_is_no_block_is_an_error():
    with pytest.raises(TypeError, match="read more than once; got generator"):
        bc.Blocks(_make())
    with pytest.raises(TypeError, match="tuples"):
        bc.Blocks([ROWS]).total(_sum)
    with pytest.raises(TypeError, match="arrays or data sets, got str"):
        bc.Blocks.of("scores.csv")
    with pytest.raises(ValueError, match="left out"):
        as_blocks(bc.Blocks(_make), ROWS)


def test_blocks_that_change_between_passes_are_an_error():
    counts = iter([4, 3])
    blocks = bc.Blocks(lambda: [(ROWS,)] * next(counts))
    blocks.total(_sum)
    with pytest.raises(ValueError, match="same blocks for each pass, got 3 after 4"):
        blocks.total(_sum)


@pytest.mark.parametrize("wrap", [lambda rows: rows, lambda rows: map(tuple, rows), _Own])
@pytest.mark.parametrize("threads", [1, 4])
def test_an_iterator_that_is_returned_twice_is_an_error(wrap, threads):
    """Check an iterator that would lose the blocks read first, or all of them."""
    rows = iter([(ROWS / 10 + number / 100, ROWS > 4) for number in range(8)])
    once = wrap(rows)
    with pytest.raises((TypeError, ValueError), match="return a new iterator"):
        bc.metrics.log_loss(bc.Blocks(lambda: once, threads=threads))
    one = _make()
    blocks = bc.Blocks(lambda: one)
    blocks.total(_sum)
    with pytest.raises(TypeError, match="got the same generator again; create it inside"):
        blocks.total(_sum)


CHANGES = {
    "a row less": lambda s, y, w: (s[1:], y[1:], w[1:]),
    "a score": lambda s, y, w: (s + (np.arange(len(s)) == 3), y, w),
    "another order of scores": lambda s, y, w: (s[::-1], y, w),
    "a label": lambda s, y, w: (s, y ^ (np.arange(len(y)) == 999), w),
    "a weight": lambda s, y, w: (s, y, w + (np.arange(len(w)) == 500)),
    "no weights": lambda s, y, w: (s, y),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("kind", [bool, np.int8, int, float, str, object])
def test_rows_that_change_between_passes_are_an_error(change, kind):
    rng = np.random.default_rng(0)
    rows = rng.uniform(size=1000), rng.integers(0, 2, 1000), rng.uniform(size=1000)

    def make():
        passes.append(1)
        s, y, *w = rows if len(passes) == 1 else change(*rows)
        yield from [(s, y.astype(kind), *w)] * 3

    passes = []
    blocks = bc.Blocks(make, threads=1)
    blocks.total(_sum)
    with pytest.raises(ValueError, match="block 0 must hold the same rows in each pass"):
        blocks.total(_sum)
    # Newly read data may differ, so the next pass counts as the first.
    assert blocks.total(_sum)["n"] == 3 * len(change(*rows)[0])


@pytest.mark.parametrize(
    "form",
    [
        list,
        tuple,
        np.asarray,
        "series",
        pytest.param("tensor", marks=pytest.mark.parity("torch")),
        "arrow",
        partial(np.asarray, dtype=np.float16),
        partial(jnp.asarray, dtype=jnp.bfloat16),
    ],
)
def test_changes_are_noticed_in_arrays_of_any_library(form):
    if form == "series":
        form = pytest.importorskip("pandas").Series
    elif form == "tensor":
        import torch

        form = torch.as_tensor
    elif form == "arrow":
        form = pytest.importorskip("pyarrow").array
    labels = [[0.0, 1.0, 1.0, 0.0, 1.0], [0.0, 1.0, 0.0, 1.0, 1.0]]
    for changed in range(2):
        calls = iter([0, 0, 1])

        def make(changed=changed, calls=calls):
            number = next(calls)
            yield tuple(form(labels[number if index == changed else 0]) for index in range(2))

        blocks = bc.Blocks(make)
        blocks.total(_number, _append)
        blocks.total(_number, _append)
        with pytest.raises(ValueError, match="must hold the same rows"):
            blocks.total(_number, _append)


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_scores_that_are_rounded_otherwise_are_the_same(kind):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(1000, 3)).astype(kind)
    blocks = bc.Blocks(lambda: [(logits * (1 + 1e-7 * rng.normal(size=logits.shape)),)])
    blocks.total(_sum)
    blocks.total(_sum)


def test_changes_are_noticed_by_calibrated_blocks_and_workers_of_dask():
    array, dask = pytest.importorskip("dask.array"), pytest.importorskip("dask")
    rows = [np.linspace(0, 1, 5), np.linspace(0, 1, 5)]
    parts = [
        array.from_delayed(dask.delayed(lambda j=j: rows[j].copy(), pure=False)(), (5,), float)
        for j in range(2)
    ]
    blocks = bc.Blocks([(row,) for row in rows]), as_blocks(array.concatenate(parts))
    for source in blocks:
        source.mapped(partial(_half, np.ones(2))).total(_sum)
    rows[1] += 1
    for source in blocks:
        with pytest.raises(ValueError, match="block 1 must hold the same rows"):
            source.total(_sum)


def test_arguments_that_cannot_be_are_an_error():
    for threads in (-1, 0, "a", 2.5):
        with pytest.raises((TypeError, ValueError), match="threads must be"):
            bc.Blocks(_make, threads=threads)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="progress must be a function, got int"):
        bc.Blocks.of(ROWS, progress=3)  # pyright: ignore[reportArgumentType]


def test_an_error_says_in_which_block():
    def fail(block):
        if block.number == 2:
            raise error("scores must be finite")
        return _sum(block)

    error = ValueError
    with pytest.raises(ValueError, match="block 2: scores must be finite"):
        bc.Blocks(_make).total(fail)
    error = KeyError
    with pytest.raises(KeyError) as caught:
        bc.Blocks(_make).total(fail)
    assert caught.value.__notes__ == ["in block 2"]


def test_progress_is_said():
    steps = []
    blocks = bc.Blocks(_make, progress=lambda *step: steps.append(step))
    blocks.total(_sum)
    blocks.total(_sum)
    assert steps[0] == (0, 1, None) and steps[3] == (0, 4, None)
    assert steps[-1] == (1, 4, 4)


def _sources(tmp_path, scores, y, weights):
    """Yield blocks of rows from every kind of source, with its name."""
    yield "arrays", bc.Blocks.of(scores, y, weights)
    np.save(tmp_path / "scores.npy", scores)
    yield "mapped", as_blocks(np.load(tmp_path / "scores.npy", mmap_mode="r"), y, weights)
    zarr = pytest.importorskip("zarr")
    stored = zarr.create_array(tmp_path / "z", shape=scores.shape, chunks=(70, 2), dtype="f8")
    stored[:] = scores
    yield "zarr", as_blocks(stored, y, weights)
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "s.h5", "w") as file:
        yield "h5py", as_blocks(file.create_dataset("s", data=scores), y, weights)
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    dataset = pytest.importorskip("pyarrow.dataset")
    table = pa.table({**dict(zip("abc", scores.T, strict=True)), "y": y, "w": weights})
    parquet.write_table(table, tmp_path / "t.parquet", row_group_size=300)
    yield "parquet", as_blocks(dataset.dataset(tmp_path / "t.parquet"), "y", "w")
    yield "table", as_blocks(table, "y", "w")
    array = pytest.importorskip("dask.array")
    lazy = array.from_array(scores, chunks=(300, 2))
    yield "dask", as_blocks(lazy, array.from_array(y, chunks=400), weights)
    frame = pytest.importorskip("dask.dataframe").from_pandas(table.to_pandas(), npartitions=4)
    yield "frame", as_blocks(frame, "y", "w")
    yield "series", as_blocks(frame[["a", "b", "c"]], frame["y"], frame["w"])


def _count_if(parameters: np.ndarray, block: Block) -> dict[str, np.ndarray]:
    return {"n": np.asarray(len(block.scores) * len(parameters))}


def test_large_arguments_are_one_task_of_a_graph():
    array, dask = pytest.importorskip("dask.array"), pytest.importorskip("dask")
    cloudpickle = pytest.importorskip("cloudpickle")
    large, heavy = np.zeros(100_000), []

    def schedule(graph, keys, **_):
        graph = dict(graph.__dask_graph__() if hasattr(graph, "__dask_graph__") else graph)
        tasks = graph.values()
        heavy.append(sum(len(cloudpickle.dumps(task)) > large.nbytes for task in tasks))
        return dask.get(graph, keys)

    lazy = array.from_array(np.arange(100.0), chunks=5)
    mapped = as_blocks(lazy).mapped(partial(_half, large))
    with dask.config.set(scheduler=schedule):
        assert as_blocks(lazy).total(partial(_count_if, large))["n"] == 100 * len(large)
        assert mapped.total(_sum)["sum"] == 4950 / 2
        map_chunks(partial(_half, large), lazy[:, None], 1).compute()
    assert heavy == [1, 1, 1]


def _half(parameters: np.ndarray, block: Block) -> np.ndarray:
    return block.scores / 2


def test_chunks_of_dask_are_read_once_for_all_columns():
    array, dask = pytest.importorskip("dask.array"), pytest.importorskip("dask")
    read = []

    def chunk(number):
        read.append(number)
        return np.full((5, 3), number)

    parts = [array.from_delayed(dask.delayed(chunk)(j), (5, 3), float) for j in range(4)]
    rows = array.concatenate(parts)
    as_blocks(rows[:, 0], rows[:, 1] > 1, rows[:, 2]).total(_sum)
    assert sorted(read) == [0, 1, 2, 3]


def _all(block: Block) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in block._asdict().items() if name != "number"}


def _stack(first: dict, second: dict) -> dict:
    return {name: np.concatenate([value, second[name]]) for name, value in first.items()}


def test_all_sources_give_the_same_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("bayescal.data.blocks.stream._IN_MEMORY", 0)
    rng, names = np.random.default_rng(0), []
    rows = rng.uniform(size=(1000, 3)), rng.integers(0, 3, 1000), rng.uniform(size=1000)
    for name, blocks in _sources(tmp_path, *rows):
        result = blocks.total(_all, _stack)
        for actual, wanted in zip(result.values(), rows, strict=True):
            np.testing.assert_array_equal(actual, wanted, err_msg=name)
        names.append(name)
    assert {"parquet", "dask", "frame"} <= set(names)


def test_arrays_in_memory_are_no_blocks():
    assert as_blocks(ROWS, ROWS) is None
    assert as_blocks(ROWS.tolist(), ROWS) is None


def test_what_is_no_array_is_an_error(tmp_path):
    zarr, h5py = pytest.importorskip("zarr"), pytest.importorskip("h5py")
    array, pa = pytest.importorskip("dask.array"), pytest.importorskip("pyarrow")
    with h5py.File(tmp_path / "s.h5", "w") as file:
        for source in (file, zarr.group()):
            with pytest.raises(TypeError, match="must be an array, got a (File|Group) of"):
                bc.Blocks.of(source, ROWS)
            with pytest.raises(TypeError, match="y must be an array, got (File|Group)"):
                bc.Blocks.of(ROWS, source)
    for source in (zarr.array(0.5), array.from_array(np.array(0.5)), np.array(0.5)):
        with pytest.raises(ValueError, match=r"scores must have shape \(n,\) or \(n, k\)"):
            bc.Blocks.of(source, ROWS)
        for scores in (ROWS, array.from_array(ROWS, chunks=5)):
            with pytest.raises(ValueError, match="y must have"):
                bc.Blocks.of(scores, source)
    table = pa.table({"p": ROWS, "y": ROWS, "w": ROWS})
    frame = pytest.importorskip("dask.dataframe").from_pandas(table.to_pandas(), npartitions=2)
    with pytest.raises(TypeError, match="y must be the name of a column, got ndarray"):
        bc.Blocks.of(table, ROWS)
    with pytest.raises(TypeError, match="sample_weight must be the name of a column, got list"):
        bc.Blocks.of(table, "y", ROWS.tolist())
    twice = pa.table([pa.array(ROWS)] * 3, names=["p", "p", "y"])
    for source in (table, frame):
        with pytest.raises(ValueError, match="must be different columns, got 'y' for both"):
            bc.Blocks.of(source, "y", "y")
    for source in (twice, frame[["p", "p", "y"]]):
        with pytest.raises(ValueError, match="names that differ, got 'p' twice"):
            bc.Blocks.of(source, "y")


def test_batches_without_rows_and_other_formats_of_files(tmp_path):
    pa, dataset = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.dataset")
    feather = pytest.importorskip("pyarrow.feather")
    rng = np.random.default_rng(0)
    p = rng.uniform(size=300)
    y = (rng.uniform(size=300) < p).astype(int)
    table = pa.table({"p": p, "y": y})
    empty = table.slice(0, 0)
    for i, part in enumerate((empty, table.slice(0, 100), empty, table.slice(100), empty)):
        feather.write_feather(part, tmp_path / f"{i}.feather")
    gaps = pa.Table.from_batches([*empty.to_batches(), *table.to_batches(), *empty.to_batches()])
    expected = bc.Temperature().fit(p, y).state_["theta"]
    for source in (dataset.dataset(tmp_path, format="feather"), gaps):
        result = bc.Temperature().fit(source, "y").state_["theta"]
        np.testing.assert_allclose(result, expected, rtol=1e-9)


def test_chunks_of_dask_in_which_no_row_counts():
    array = pytest.importorskip("dask.array")
    rng = np.random.default_rng(0)
    p = rng.uniform(size=300)
    y = (rng.uniform(size=300) < p).astype(int)
    weights = np.repeat([0.0, 1.0, 0.0], 100)
    lazy = [array.from_array(values, chunks=100) for values in (p, y, weights)]
    result = bc.Temperature().fit(*lazy).state_["theta"]
    expected = bc.Temperature().fit(p[100:200], y[100:200]).state_["theta"]
    np.testing.assert_allclose(result, expected, rtol=1e-9)


def test_chunks_of_unknown_size_need_labels_in_chunks():
    array, pandas = pytest.importorskip("dask.array"), pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    p = rng.uniform(size=200)
    y = (rng.uniform(size=200) < p).astype(int)
    lazy = array.from_array(p, chunks=50)
    unknown, labels = lazy[lazy >= 0], array.from_array(y, chunks=50)
    with pytest.raises(TypeError, match=r"^y must be Dask data.*chunk_sizes\(\) finds them$"):
        bc.Temperature().fit(unknown, y)
    with pytest.raises(ValueError, match="^y must have 4 chunks to match scores, got 2$"):
        bc.Temperature().fit(unknown, labels.rechunk(100))
    frame = pytest.importorskip("dask.dataframe").from_pandas(pandas.DataFrame({"p": p}), 2)
    with pytest.raises(TypeError, match=r"got ndarray; add it as a column, and pass the name$"):
        bc.Temperature().fit(frame, y)
    expected = bc.Temperature().fit(p, y).state_["theta"]
    result = bc.Temperature().fit(unknown, labels[lazy >= 0]).state_["theta"]
    np.testing.assert_allclose(result, expected, rtol=1e-9)
    unknown.compute_chunk_sizes()
    np.testing.assert_allclose(bc.Temperature().fit(unknown, y).state_["theta"], expected)


def test_columns_without_text_are_no_names():
    pandas = pytest.importorskip("pandas")
    p = np.linspace(0.1, 0.9, 50)
    for column, names in ((5, []), ("p", ["p"])):
        frame = pandas.DataFrame({column: p})
        for rows in ((bc.Blocks([(frame, p > 0.4)]),), (frame, p > 0.4)):
            fitted = bc.Temperature().fit(*rows)
            assert list(getattr(fitted, "feature_names_in_", [])) == names


def test_sources_of_different_length_are_an_error(tmp_path):
    array = pytest.importorskip("dask.array")
    with pytest.raises(ValueError, match="y must have 10 rows to match scores, got 9"):
        bc.Blocks.of(ROWS, ROWS[:9])
    with pytest.raises(ValueError, match="y must have 10 rows to match scores, got 9"):
        as_blocks(array.from_array(ROWS, chunks=5), array.from_array(ROWS[:9], chunks=5))
    with pytest.raises(ValueError, match="name of a column"):
        pa = pytest.importorskip("pyarrow")
        as_blocks(pa.table({"a": ROWS, "b": ROWS}), "label")


class TestCheckpoint:
    """Results of passes are stored and restored."""

    def test_a_fit_goes_on_where_it_was(self, tmp_path):
        path, read = tmp_path / "kept", []

        def make():
            read.append(1)
            yield from _make()

        first = bc.Blocks(make, checkpoint=path)
        first.total(_sum)
        first.total(partial(_times, 2.0))
        again, before = bc.Blocks(make, checkpoint=path), len(read)
        assert again.total(_sum)["sum"] == 45
        assert again.total(partial(_times, 2.0))["sum"] == 90
        assert again.total(partial(_times, 3.0))["sum"] == 135
        # One of three passes is read, and one block is read first to inspect it.
        assert len(read) - before == 1 + 1
        assert again.passes == 3

    def test_another_fit_or_other_data_are_an_error(self, tmp_path):
        path = tmp_path / "kept"
        bc.Blocks(_make, checkpoint=path).total(partial(_times, 2.0))
        with pytest.raises(ValueError, match="by a different fit"):
            bc.Blocks(_make, checkpoint=path).total(partial(_times, 3.0))
        with pytest.raises(ValueError, match="for other data"):
            bc.Blocks([(ROWS,)], checkpoint=path).total(partial(_times, 2.0))

    def test_rows_of_any_block_are_compared(self, tmp_path):
        path = tmp_path / "kept"
        rows = [(ROWS, ROWS > 4)] * 4
        bc.Blocks(rows, checkpoint=path).total(_sum)
        rows[2] = ROWS, ROWS > 5
        others = bc.Blocks(rows, checkpoint=path)
        assert others.total(_sum)["n"] == 40
        # The error appears in the next pass, or at the end without one.
        for end in (others.finish, lambda: others.total(partial(_times, 2.0))):
            with pytest.raises(ValueError, match="for other data .block 2 .*delete the file"):
                end()
        assert path.exists()
        fewer = bc.Blocks(rows[:2], checkpoint=path)
        fewer.total(_sum)
        with pytest.raises(ValueError, match="for other data"):
            fewer.finish()

    def test_a_failure_to_read_keeps_what_was_restored(self, tmp_path):
        path = tmp_path / "kept"
        expected = bc.Blocks(_make, checkpoint=path).total(_sum)
        fails = iter([True, False, False])

        def make():
            if next(fails):
                raise OSError("no connection")
            yield from _make()

        again = bc.Blocks(make, checkpoint=path)
        with pytest.raises(OSError, match="no connection"):
            again.total(_sum)
        assert again.total(_sum) == expected
        rows = bc.Blocks(lambda: [(ROWS[::-1], ROWS > 4)], checkpoint=path)
        with pytest.raises(ValueError, match="for other data"):
            rows.total(_sum)

    def test_where_no_file_can_be_is_said_at_once(self, tmp_path):
        with pytest.raises(ValueError, match="checkpoint must be the path of a file, got ''"):
            bc.Blocks(_make, checkpoint="")
        with pytest.raises(IsADirectoryError, match="give the path of a file"):
            bc.Blocks(_make, checkpoint=tmp_path)
        with pytest.raises(FileNotFoundError, match="create it first"):
            bc.Blocks(_make, checkpoint=tmp_path / "absent" / "file")

    def test_a_file_of_the_user_stays(self, tmp_path):
        path = tmp_path / "scores.csv"
        path.write_text("a,b")
        blocks = bc.Blocks(_make, checkpoint=path)
        blocks.finish()
        with pytest.raises(ValueError, match="damaged or another file"):
            blocks.total(_sum)
        assert path.read_text() == "a,b"

    def test_what_killed_runs_left_is_deleted(self, tmp_path):
        path = tmp_path / "kept"
        partial_path(path).write_bytes(b"half")
        blocks = bc.Blocks(_make, checkpoint=path)
        blocks.total(_sum)
        assert [*tmp_path.iterdir()] == [path]

    @pytest.mark.parametrize(
        "use",
        [
            bc.metrics.log_loss,
            partial(bc.metrics.ece, binning="equal_mass"),
            partial(bc.metrics.interval, "ece", replicates=10),
            partial(bc.metrics.report, metrics=["log_loss"], replicates=10),
            bc.Beta().fit,
        ],
    )
    def test_metrics_reports_and_fits_delete_it_at_the_end(self, tmp_path, use):
        rng, path = np.random.default_rng(0), tmp_path / "kept"
        p = rng.uniform(size=200)
        rows = [(p[i : i + 50], rng.uniform(size=50) < p[i : i + 50]) for i in (0, 50, 100)]
        blocks = bc.Blocks(rows, checkpoint=path)
        use(blocks)
        assert not path.exists()
        # Use the blocks for a different fit afterward.
        bc.metrics.brier_score(blocks)
        assert not path.exists()

    def test_damage_is_an_error_and_the_end_deletes_it(self, tmp_path):
        path = tmp_path / "kept"
        blocks = bc.Blocks(_make, checkpoint=path)
        blocks.total(_sum)
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(ValueError, match="damaged"):
            bc.Blocks(_make, checkpoint=path).total(_sum)
        blocks.finish()
        assert not path.exists()


def test_addition_is_by_name():
    assert add({"a": np.ones(2)}, {"a": np.ones(2)})["a"].tolist() == [2, 2]
