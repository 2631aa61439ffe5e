"""Work divided among simulated processes; ``tests/inference/test_hosts.py`` uses real ones."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from bayescal._core.execution import hosts
from tests.core.processes import PROCESSES, run_together


@pytest.mark.parametrize("count", [2, 7, 9])
def test_each_computes_a_part_and_all_have_everything(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    numbers, keys = np.arange(count) ** 2.0, jax.random.split(jax.random.key(0), count)
    computed = []

    def run(_: int) -> Any:
        rows = hosts.rows_of(count)
        assert rows is not None
        padded = np.append(rows, rows[-1])  # added entries are dropped

        def compute() -> dict[str, Any]:
            computed.append(rows.tolist())
            return {
                "rows": numbers[padded],
                "keys": keys[padded],
                "largest": np.float64(rows.max()),
            }

        return hosts.gather_rows(compute, rows, count + 2, (numbers, keys, "text"))

    results = run_together(monkeypatch, run)
    assert {row for rows in computed for row in rows} == {*range(count)}
    assert len({len(rows) for rows in computed}) == 1
    repeated = np.minimum(np.arange(count + 2), count - 1)
    for result in results:
        np.testing.assert_array_equal(result["rows"], numbers[repeated])
        same = jax.random.key_data(result["keys"]) == jax.random.key_data(keys[repeated])
        assert same.all()
        assert result["largest"] == count - 1


def test_one_row_and_processes_that_work_alone_divide_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jax, "process_count", lambda: PROCESSES)
    assert hosts.rows_of(1) is None
    with hosts.alone():
        assert hosts.rows_of(9) is None
    with jax.default_device(jax.local_devices()[0]):
        assert hosts.rows_of(9) is None
    assert hosts.gather_rows(lambda: "all", None, 9, ()) == "all"


def test_the_error_of_one_process_reaches_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(process: int) -> list[int]:
        def compute() -> int:
            if process == 1:
                raise ValueError("no memory")
            return process

        return hosts.gather(compute, (1.0, "a"))

    messages = [repr(error) for error in run_together(monkeypatch, run)]
    other = "RuntimeError('process 1 of 3 failed: ValueError: no memory')"
    assert messages == [other, "ValueError('no memory')", other]


def test_processes_with_other_arguments_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(process: int) -> list[int]:
        seed = 8 if process == 2 else 7
        return hosts.gather(lambda: process, {"x": np.arange(3), "key": jax.random.key(seed)})

    messages = [str(error) for error in run_together(monkeypatch, run)]
    for process, other in enumerate((2, 2, 0)):
        assert messages[process].startswith(
            "all processes must be given the same arguments, got others in process "
            f"{other} than in process {process}; "
        )
        assert "jax.default_device(jax.local_devices()[0])" in messages[process]


def test_equal_arguments_may_come_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(process: int) -> list[int]:
        return hosts.gather(lambda: process, [np.arange(3), "a"][:: 1 if process else -1])

    assert run_together(monkeypatch, run) == [[0, 1, 2]] * 3
