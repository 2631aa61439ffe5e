"""Vector scaling of logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from bayescal._core.arrays import AnyArray, XArray, namespace
from bayescal.calibrators.base.calibrator import Calibrator
from bayescal.calibrators.multiclass.linear import LinearCalibrator
from bayescal.calibrators.multiclass.top_logits.vector import TopVector


@dataclass(eq=False, repr=False)
class Vector(LinearCalibrator):
    r"""Vector scaling: multiply the logit of each class by a factor, and add an intercept.

    .. math:: \hat p = \operatorname{softmax}(v \circ z + b)

    The fit is maximum likelihood by Newton's method: O(n k) for each of a few dozen products with
    the Hessian. Factors may be negative. Intercepts are centered, because only their differences
    matter.

    With truncated logits (``inputs="top_logits"``, see :class:`Temperature`), a class has a
    separate factor and intercept if it is the label of at least one row and among the top classes
    of that row. All other classes, and the rest of a row, share one pair (v, b):

    .. math:: \hat p_j \propto e^{v_j z_j + b_j}, \qquad
       \hat p_{rest} \propto (k - m)\, e^{v (r - \ln(k - m)) + b}

    If all labels are among the top classes, the data do not determine this pair. Its classes then
    keep their probabilities after temperature scaling, divided by one plus the number of labels
    that these probabilities predict. Blocks are read once for each product with the Hessian.

    Attributes
    ----------
    coef_, intercept_ : arrays of shape (k,)
        Factors and intercepts of the classes with labels. For truncated logits (k + 1,), with those
        of the rest at the end.
    gradient_norm_ : float
        Largest entry of the gradient of the mean loss.

    See Also
    --------
    StructuredVector : Factors and intercepts shrunk toward a temperature.
    Matrix : A full matrix, with penalties.

    References
    ----------
    C. Guo et al. (2017), On calibration of modern neural networks.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 0, 2, 1, 1, 1, 2, 0, 0]
    >>> bc.Vector().fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.54, 0.32, 0.15]]
    """

    gradient_norm_: float = field(init=False)

    _by_inputs: ClassVar[Mapping[str, type[Calibrator]]] = {"top_logits": TopVector}

    def _centered(self, coef: XArray, intercept: AnyArray) -> tuple[AnyArray, AnyArray]:
        return coef, intercept - namespace(intercept).mean(intercept, axis=-1, keepdims=True)
