"""Metrics as scorers of scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bayescal.metrics._scoring import Scorer


def scorer(name: str, *, pos_label: object = None, **options: object) -> Scorer:
    r"""Turn a metric into a scikit-learn scorer: ``scorer(estimator, X, y)``, larger is better.

    As those of ``sklearn.metrics.make_scorer`` it goes to ``scoring`` of ``cross_val_score``,
    ``GridSearchCV`` and others. What is small for good predictions is negated: the score is minus
    the metric, which scikit-learn says by the prefix ``neg_``; a metric of either sign
    (``loss_gap``) gives minus its size. It asks ``predict_proba``, and the estimator's ``classes_``
    say what its columns are, also where a fold lacks a class.

    Parameters
    ----------
    name : str
        A metric of this module that compares probabilities with labels and returns one number:
        ``"ece"``, or by scikit-learn's habit ``"neg_ece"``, which is the same.
    pos_label : label, optional
        Of two classes the one whose probability (n,) is judged, as scikit-learn does; by default
        the second of ``classes_``. Of more classes all columns are judged.
    **options
        Of the metric, such as ``bins=15``; not ``classes``, ``inputs`` and ``weights``.

    Returns
    -------
    Scorer
        Called with ``sample_weight`` it weighs cases; under metadata routing
        ``set_score_request(sample_weight=True)`` asks for these.

    Raises
    ------
    TypeError, ValueError
        For other names and options; when called, if ``pos_label`` is none of two classes, and as
        the metric.

    References
    ----------
    https://scikit-learn.org/stable/modules/model_evaluation.html

    Examples
    --------
    >>> import numpy as np, bayescal as bc
    >>> from sklearn.model_selection import cross_val_score
    >>> scores, y = np.tile([0.2, 0.4, 0.6, 0.8], 25), np.tile([0, 0, 0, 1, 0, 1, 1, 1], 13)[:100]
    >>> cross_val_score(bc.Temperature(), scores, y, scoring=bc.metrics.scorer("log_loss"), cv=2)
    array([-0.409..., -0.425...])
    """
    from bayescal.metrics._scoring import make

    return make(name, pos_label, options)
