"""Fixtures shared by the tests of all calibrators."""

from collections.abc import Iterator

import pytest

from bayescal.calibrators.multiclass.order_preserving import calibrator


@pytest.fixture(autouse=True, scope="module")
def _small_networks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let ``OrderPreserving`` choose among smaller networks outside its own tests.

    Larger networks take a second for each fit.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.path.name != "test_order_preserving.py":
            patch.setattr(calibrator, "_SIZES", dict.fromkeys(calibrator._SIZES, ((2, 2), (3, 3))))
        yield
