"""Messages about invalid options of calibrators."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import bayescal as bc

NAN, INF = np.nan, np.inf
#: Calibrators with an option, invalid values, and a part of the message.
WRONG: list[tuple[Any, str, tuple[Any, ...], str]] = [
    (bc.AveragedBeta, "power", (0, -1, INF, NAN), "be positive and finite"),
    (bc.BBQ, "prior_weight", (0.0, -1.0, NAN, INF), "lie in [1e-6, 1e6], got"),
    (bc.BBQ, "range_factor", (0.5, 101.0, NAN, INF), "lie in [1, 100], got"),
    (bc.Beta, "parameters", (4,), "be one of 3, 2, 1, got 4"),
    (bc.BinwiseTemperature, "binning", ("width",), "be one of"),
    (bc.BinwiseTemperature, "bins", (1.5,), "be an integer"),
    (bc.BinwiseTemperature, "objective", ("ece",), "be one of"),
    (bc.CDFSpline, "knots", (1,), "be at least 2, got 1"),
    (bc.CDFSpline, "knots", (2.5,), "be an integer, got 2.5"),
    (bc.CenteredIsotonic, "bounds", ("clip",), "be one of 'none', 'laplace', got 'clip'"),
    (bc.Decision, "crop", (0.7,), ""),
    (bc.Decision, "decisions", (0,), "be at least 1, got 0"),
    (bc.Decision, "partition", ("firm",), ""),
    (bc.Decision, "steps", ("all",), "be an integer"),
    (bc.Decision, "tolerance", (-1.0, INF, NAN), "be finite and not negative"),
    (bc.Dirichlet, "intercept", (-1.0, NAN, "auto", True), "be 'cv' or not negative"),
    (bc.Forest, "assumption", ("none",), "be one of"),
    (bc.Forest, "bins", (0,), "be at least 1, got 0"),
    (bc.Forest, "bins", ("few",), "be an integer, got 'few'"),
    (bc.Forest, "crop", (0.6,), "be less than 0.5"),
    (bc.Forest, "trees", (0,), "be at least 1, got 0"),
    (bc.Histogram, "binning", ("equal_size",), "be one of"),
    (bc.Histogram, "bins", (0,), "be at least 1, got 0"),
    (bc.Histogram, "prior_weight", (-1.0, NAN, INF), "not be negative, got"),
    (bc.Histogram, "prior_weight", ("1",), "be a number, got '1'"),
    (bc.Isotonic, "bounds", ("clip",), "be one of 'none', 'laplace', got 'clip'"),
    (bc.KNN, "assumption", ("none",), "be one of"),
    (bc.KNN, "crop", (0.7,), "be less than 0.5"),
    (bc.KNN, "distance", ("cosine",), "be one of"),
    (bc.KNN, "k", (0,), "be at least 1, got 0"),
    (bc.KNN, "k", (2.5,), "be an integer, got 2.5"),
    (bc.Kernel, "assumption", ("none",), "be one of"),
    (bc.Kernel, "bandwidth", (0, -1.0, INF, NAN, True, "silverman"), "be 'cv' or a positive num"),
    (bc.Kernel, "crop", (0.0,), "lie strictly between 0 and 1"),
    (bc.Kernel, "crop", (0.5,), "be less than 0.5"),
    (bc.Kernel, "kernel", ("gauss",), "be one of"),
    (bc.Logistic, "smoothing", (0.5, -0.1, NAN), "lie in [0, 0.5), got"),
    (bc.Logistic, "smoothing", ("ils",), "be one of 'platt', 'instance', got 'ils'"),
    (bc.Matrix, "off_diagonal", (-1.0, NAN, "auto", True), "be 'cv' or not negative"),
    (bc.NearIsotonic, "strength", (-1.0, INF, NAN, "cv", True, None), "be 'bic' or a number of"),
    (bc.OrderPreserving, "family", ("invariant",), "be one of"),
    (bc.OrderPreserving, "hidden", ("auto",), "be one of 'cv', got 'auto'"),
    (bc.OrderPreserving, "hidden", ((3,),), "be 'cv' or two integers"),
    (bc.OrderPreserving, "hidden", ((3, 0),), "be at least 1, got 0"),
    (bc.Spline, "epsilon", (0.5, "none"), "be 'auto' or lie between 0 and 1/2, got"),
    (bc.Spline, "folds", (1,), "be at least 2, got 1"),
    (bc.Spline, "knots", (2,), "be at least 3, got 2"),
    (bc.Spline, "knots", ([0.1, 0.5], [0.1, 0.5, 1.5]), "be 3 or more distinct probabilities, got"),
    (bc.Spline, "penalty", ("l2",), "be one of 'symmetric', 'coefficients', 'curvature', got"),
    (bc.Spline, "rescale", ("odds",), "be one of None, 'compact_logit', 'logit', got 'odds'"),
    (bc.Spline, "rule", ("first",), "be one of 'one_se', 'best', got 'first'"),
    (bc.Spline, "strength", (-1.0, INF, NAN, "best"), "be 'cv' or not negative, got"),
    (bc.Spline, "strengths", ([], [1.0, 0.0]), "be positive numbers, got"),
    (bc.Spline, "unity_prior_weight", (-1.0, NAN), "not be negative, got"),
    (bc.WeightScaling, "binning", ("equal",), "be one of"),
    (bc.WeightScaling, "bins", (0,), "be at least 1, got 0"),
]


@pytest.mark.parametrize(("cls", "option", "values", "message"), WRONG)
def test_invalid_options_are_named(
    cls: Any, option: str, values: tuple[Any, ...], message: str
) -> None:
    for value in values:
        with pytest.raises((TypeError, ValueError), match=f"^{option} must {re.escape(message)}"):
            cls(**{option: value}).fit([[0.2, 0.8], [0.7, 0.3]], [1, 0])
