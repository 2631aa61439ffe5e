"""Sweeps: comparisons of methods on many data sets from known generative models."""

from bayescal.sweeps._sweep import sweep as sweep
