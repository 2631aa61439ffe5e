"""The limit on BLAS threads is global: overlapping users must not leave it in place."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import threading
import numpy
from threadpoolctl import ThreadpoolController
from bayescal._core.execution.blas import single_threaded_blas, threads_of_blas

def threads():
    return [each["num_threads"] for each in ThreadpoolController().select(user_api="blas").info()]

def other():
    with single_threaded_blas():
        entered.set()
        assert leave.wait(60)

print(threads())
for first_leaves_first in (True, False):
    entered, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=other)
    with single_threaded_blas():
        print(threads())
        thread.start()
        assert entered.wait(60)
        if not first_leaves_first:
            leave.set()
            thread.join(60)
            print(threads())
    leave.set()
    thread.join(60)
    print(threads())
for rows, columns in ((1 << 13, 8), (1 << 13, 9), (100, 2)):
    with threads_of_blas(rows, columns):
        print(threads())
"""


def test_limit_ends_with_its_users() -> None:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["[2]", "[1]", "[2]", "[1]", "[1]", "[2]", "[1]", "[2]", "[2]"]
