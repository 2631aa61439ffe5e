"""Shapes in annotations: checked in each call of a test run, and ignored otherwise."""

import json
import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayescal.regression.binary import objective
from bayescal.regression.binary.objective import BinaryDesign, Regression
from tests.shape_checks import Loader, ShapeError

pytestmark = pytest.mark.skipif(
    "BAYESCAL_TESTS_SKIP_SHAPES" in os.environ, reason="shapes are not checked in this run"
)
X, ONES = np.arange(12.0).reshape(6, 2), np.ones(6)
PROBLEM = Regression(X, ONES / 2, ONES, 0.0, 0.0)
DESIGN = BinaryDesign(np.vstack([ONES, X.T]), ONES / 2, ONES)


@pytest.mark.parametrize(
    ("beta", "design", "fault"),
    [
        (np.zeros(3), DESIGN, None),
        (np.zeros(4), DESIGN, "beta"),
        (np.zeros((3, 1)), DESIGN, "beta"),
        (np.zeros(3, int), DESIGN, "beta"),
        ([0.0, 0.0, 0.0], DESIGN, "beta"),
        (jnp.zeros(3), DESIGN, "beta"),
        (np.zeros(3), DESIGN._replace(weights=ONES[:5]), "design.weights"),
        (np.zeros(3), DESIGN._replace(columns=DESIGN.columns.T), "design.targets"),
    ],
)
def test_a_wrong_shape_type_or_dtype_is_refused(
    beta: Any, design: BinaryDesign, fault: str | None
) -> None:
    if fault is None:
        assert objective.cross_entropy_on_host(design, beta).gradient.shape == (3,)
        return
    for _ in range(2):  # A refused shape must not be cached as checked.
        with pytest.raises(ShapeError, match=f"^{fault} of .*cross_entropy_on_host should be"):
            objective.cross_entropy_on_host(design, beta)


def test_computed_axes_and_axes_of_batches() -> None:
    unit = np.ones(3)
    objective.penalty_terms(PROBLEM, unit, unit, np)
    with pytest.raises(ShapeError, match="^unit of "):
        objective.penalty_terms(PROBLEM, unit[1:], beta=unit, xp=np)
    with pytest.raises(ShapeError, match="^problem.targets of "):
        objective.penalty_terms(PROBLEM._replace(targets=ONES[None]), unit, unit, np)


def test_shapes_are_checked_while_jax_compiles() -> None:
    problem = jax.tree.map(jnp.asarray, PROBLEM)
    program = jax.jit(jax.vmap(objective.cross_entropy, (None, 0)))
    assert program(problem, jnp.zeros((5, 3))).value.shape == (5,)
    with pytest.raises(ShapeError, match="^beta of "):
        program(problem, jnp.zeros((5, 4)))


@pytest.mark.parametrize("alias", [False, True])
def test_results_and_functions_within_functions_are_checked(alias: bool, tmp_path: Path) -> None:
    path = tmp_path / "made.py"
    kind = "Pairs" if alias else "Float[np.ndarray, 'rows 2']"
    path.write_text(
        "from __future__ import annotations\n"
        "from typing import TypeAlias\n"
        "import numpy as np\n"
        "from bayescal._core.shapes import Float\n"
        "Pairs: TypeAlias = \"Float[np.ndarray, 'rows 2']\"\n"
        "def outer(x, half):\n"
        f"    def inner(x: {kind}) -> tuple[Float[np.ndarray, ' rows'], int]:\n"
        "        return half(x), 1\n"
        "    return inner(x)\n"
    )
    loader = Loader("made", str(path))
    spec = spec_from_loader("made", loader)
    assert spec is not None
    made = module_from_spec(spec)
    loader.exec_module(made)
    assert made.outer(X, lambda x: x[:, 0])[0].shape == (6,)
    with pytest.raises(ShapeError, match=r"^return of made.outer.<locals>.inner .*float64\[6, 2\]"):
        made.outer(X, lambda x: x[0])
    with pytest.raises(ShapeError, match="^x of made.outer.<locals>.inner"):
        made.outer(X[:, :1], lambda x: x[:, 0])


USER = """
import json, sys, typing
import numpy as np
from bayescal.regression import method
from bayescal.regression.binary import objective
done = objective.products(np.ones((3, 6)), np.ones(1)).tolist()  # One weight for all rows.
hints = typing.get_type_hints(objective.products)
fields = typing.get_type_hints(method.Scaling)
plain = {*hints.values(), *fields.values()} == {np.ndarray}
print(json.dumps([done, plain, "jaxtyping" in sys.modules]))
"""


def test_users_neither_have_checks_nor_need_jaxtyping() -> None:
    command = [sys.executable, "-c", USER]
    result = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(result) == [[[6.0] * 3] * 3, True, False]
    with pytest.raises(ShapeError):
        objective.products(np.ones((3, 6)), np.ones(1))
