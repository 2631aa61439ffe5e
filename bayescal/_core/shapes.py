"""Names for annotations that say the shape of an array, as in jaxtyping, but without it.

``Float[np.ndarray, "rows classes"]`` is an array of floating-point numbers with two axes. For type
checkers and for Python it is ``np.ndarray``. While tests run, each call of a function with such
annotations is checked by jaxtyping (``tests/shape_checks.py``): axes of one name have one size.
A module names the shapes that it needs often: ``PerRow: TypeAlias = 'Float[np.ndarray, " rows"]'``.
The right side is text, because ``jax.Array`` is imported when it is first used.
"""

from typing import Annotated as Bool
from typing import Annotated as Float
from typing import Annotated as Int
from typing import Annotated as Shaped

__all__ = ["Bool", "Float", "Int", "Shaped"]
