"""Run the skeleton of a calibrator in CONTRIBUTING.md."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

CONTRIBUTING = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"


@pytest.fixture(scope="module")
def skeleton() -> type:
    (code,) = re.findall(r"```python\n(.*?)```", CONTRIBUTING.read_text("utf-8"), re.DOTALL)
    module = ModuleType("skeleton_of_a_calibrator")
    # Dataclasses look up the names in annotations here.
    sys.modules[module.__name__] = module
    exec(code, module.__dict__)
    return module.__dict__["Shrinkage"]


def test_it_does_what_its_formula_says(skeleton: type) -> None:
    rng = np.random.default_rng(0)
    probs, y = rng.dirichlet(np.ones(3), 50), rng.integers(0, 3, 50)
    weights = rng.integers(1, 4, 50)
    fitted = skeleton(amount=0.25).fit(probs, y, weights)
    shares = np.bincount(np.repeat(y, weights)) / weights.sum()
    np.testing.assert_allclose(fitted.shares_, shares)
    np.testing.assert_allclose(fitted.predict_proba(probs), 0.75 * probs + 0.25 * shares)


def test_it_is_an_estimator(skeleton: type) -> None:
    rng = np.random.default_rng(1)
    p = rng.uniform(size=80)
    y = np.where(rng.uniform(size=80) < p, "yes", "no")
    assert clone(skeleton(0.3)).get_params() == {"amount": 0.3, "classes": None, "inputs": "probs"}
    search = GridSearchCV(skeleton(), {"amount": [0.0, 0.9]}, scoring="neg_log_loss")
    assert search.fit(p[:, None], y).best_params_ == {"amount": 0.0}
    with pytest.raises(ValueError, match=r"amount must lie in \[0, 1\], got 2"):
        skeleton(2).fit(p, y)
