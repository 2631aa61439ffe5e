"""Metrics as scorers of scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bayescal.metrics._scoring import Scorer


def scorer(name: str, *, pos_label: object = None, **options: object) -> Scorer:
    r"""Turn a metric into a scikit-learn scorer: ``scorer(estimator, X, y)``, larger is better.

    Pass it as ``scoring`` to ``cross_val_score``, ``GridSearchCV`` and other tools of scikit-learn.
    A metric that is small for good predictions is negated, as the prefix ``neg_`` indicates in
    scikit-learn; for a metric of either sign (``loss_gap``) the score is minus its absolute value.
    The scorer calls ``predict_proba`` and assigns columns by the estimator's ``classes_``, even if
    a fold lacks a class.

    Parameters
    ----------
    name : str
        A metric of this module that compares probabilities with labels and returns one number, such
        as ``"ece"``, except ``roc_auc`` and ``average_precision``, for which scikit-learn has
        scorers. ``"neg_ece"``, in scikit-learn's style, has the same meaning.
    pos_label : label, optional
        For two classes, the one whose probability is judged, as in scikit-learn; by default the
        second of ``classes_``. For more classes, all columns are judged.
    **options
        Options of the metric, such as ``bins=15``; not ``classes``, ``inputs`` and ``weights``.

    Returns
    -------
    Scorer
        Weights rows if called with ``sample_weight``; under metadata routing,
        ``set_score_request(sample_weight=True)`` requests these weights.

    Raises
    ------
    TypeError, ValueError
        For unknown names and options; when called, if ``pos_label`` is not one of two classes, or
        if the metric would raise.

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
