"""Modules and summaries of the public names of calibrators, without importing them."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

#: Public names by module, which is imported when a name of it is first used.
_NAMES = {
    "auto": ("Auto",),
    "base.calibrator": ("Calibrator",),
    "base.export": ("export",),
    "base.function": ("PredictFunction",),
    "base.report": ("Report",),
    "binary.averaged_beta.calibrator": ("AveragedBeta",),
    "binary.bbq": ("BBQ",),
    "binary.beta": ("Beta",),
    "binary.cdf_spline": ("CDFSpline",),
    "binary.histogram": ("Histogram",),
    "binary.monotone.isotonic": ("CenteredIsotonic", "Isotonic"),
    "binary.logistic": ("Logistic",),
    "binary.monotone.near_isotonic": ("NearIsotonic",),
    "binary.quadratic": ("Quadratic",),
    "binary.scaling_binning": ("ScalingBinning",),
    "binary.spline.calibrator": ("Spline",),
    "binary.monotone.venn_abers": ("VennAbers",),
    "combine.average": ("Average",),
    "combine.classifier.calibrator": ("CalibratedClassifier",),
    "combine.composition": ("Composition", "compose"),
    "combine.multi_label": ("MultiLabel",),
    "combine.multicalibration": ("Multicalibration",),
    "combine.one_vs_one": ("OneVsOne",),
    "combine.one_vs_rest": ("OneVsRest",),
    "combine.pooling.calibrator": ("GroupEffect", "PartialPooling"),
    "files": ("load", "save"),
    "logistic_regression": ("LogisticRegression",),
    "multiclass.binwise_temperature": ("BinwiseTemperature",),
    "multiclass.decision.calibrator": ("Decision",),
    "multiclass.dirichlet": ("Dirichlet",),
    "multiclass.ensemble_temperature": ("EnsembleTemperature",),
    "multiclass.gaussian_process.calibrator": ("GaussianProcess",),
    "multiclass.matrix": ("Matrix",),
    "multiclass.order_preserving.calibrator": ("OrderPreserving",),
    "multiclass.structured": ("StructuredMatrix", "StructuredVector"),
    "multiclass.temperature": ("Temperature",),
    "multiclass.top_logits.calibrator": ("TopProbs",),
    "multiclass.vector": ("Vector",),
    "multiclass.weight_scaling": ("WeightScaling",),
    "neighborhood.forest": ("Forest",),
    "neighborhood.kernel": ("Kernel",),
    "neighborhood.knn": ("KNN",),
    "stack.calibrator": ("StackedScaling",),
}
#: The module of each public name.
MODULES = {name: module for module, names in _NAMES.items() for name in names}
#: Classes that need more than their name to be constructed.
_NO_METHODS = {
    *("Average", "CalibratedClassifier", "Calibrator", "Composition", "LogisticRegression"),
    *("GroupEffect", "MultiLabel", "Multicalibration", "PartialPooling", "PredictFunction"),
    *("Report", "TopProbs"),
}
#: Calibrators that can be constructed by name alone.
METHODS = sorted(name for name in MODULES if name[0].isupper() and name not in _NO_METHODS)


def summary(name: str) -> str:
    """Read the first line of the docstring of a calibrator from its file.

    Examples
    --------
    >>> from bayescal.calibrators.catalog import summary
    >>> summary("Auto")
    'The default calibrator; it needs no choices.'
    """
    spec = find_spec(f"{__name__.rpartition('.')[0]}.{MODULES[name]}")
    assert spec is not None
    assert spec.origin is not None
    text = Path(spec.origin).read_text("utf-8")
    match = re.search(rf'^class {name}\b[^"]*"""(.*)', text, re.MULTILINE)
    return match[1] if match else ""
