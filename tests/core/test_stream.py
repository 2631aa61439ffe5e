"""Blocks of rows: sources, passes, threads, checkpoints."""

import threading
from functools import partial

import numpy as np
import pytest

import bayescal as bc
from bayescal._core.stream import Block, add, as_blocks, map_chunks

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


def test_an_error_says_in_which_block():
    def fail(block):
        if block.number == 2:
            raise ValueError("scores must be finite")
        return _sum(block)

    with pytest.raises(ValueError, match="block 2: scores must be finite"):
        bc.Blocks(_make).total(fail)


def test_an_error_of_any_kind_says_in_which_block():
    def fail(block):
        if block.number == 1:
            raise KeyError("unknown")
        return _sum(block)

    with pytest.raises(KeyError) as caught:
        bc.Blocks(_make).total(fail)
    assert caught.value.__notes__ == ["in block 1"]


def test_progress_is_said():
    said = []
    blocks = bc.Blocks(_make, progress=lambda *step: said.append(step))
    blocks.total(_sum)
    blocks.total(_sum)
    assert said[0] == (0, 1, None) and said[3] == (0, 4, None)
    assert said[-1] == (1, 4, 4)


def _sources(tmp_path, scores, y, weights):
    """Yield the same rows in every form, with its name."""
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
    return {name: np.asarray(own) for name, own in block._asdict().items() if name != "number"}


def _stack(first: dict, second: dict) -> dict:
    return {name: np.concatenate([own, second[name]]) for name, own in first.items()}


def test_all_sources_give_the_same_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("bayescal._core.stream._IN_MEMORY", 0)
    rng, names = np.random.default_rng(0), []
    rows = rng.uniform(size=(1000, 3)), rng.integers(0, 3, 1000), rng.uniform(size=1000)
    for name, blocks in _sources(tmp_path, *rows):
        found = blocks.total(_all, _stack)
        for own, wanted in zip(found.values(), rows, strict=True):
            np.testing.assert_array_equal(own, wanted, err_msg=name)
        names.append(name)
    assert {"parquet", "dask", "frame"} <= set(names)


def test_arrays_in_memory_are_no_blocks():
    assert as_blocks(ROWS, ROWS) is None
    assert as_blocks(ROWS.tolist(), ROWS) is None


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
    """Results of passes are kept, and found again."""

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
        # Of the three passes one is read, besides the first block that is looked at.
        assert len(read) - before == 1 + 1
        assert again.passes == 3

    def test_another_fit_or_other_data_are_an_error(self, tmp_path):
        path = tmp_path / "kept"
        bc.Blocks(_make, checkpoint=path).total(partial(_times, 2.0))
        with pytest.raises(ValueError, match="by a different fit"):
            bc.Blocks(_make, checkpoint=path).total(partial(_times, 3.0))
        with pytest.raises(ValueError, match="for other data"):
            bc.Blocks([(ROWS,)], checkpoint=path).total(partial(_times, 2.0))

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
