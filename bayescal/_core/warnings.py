"""Warnings that the package gives."""

from __future__ import annotations


class SamplingWarning(UserWarning):
    """The weighted draws describe the posterior badly; the message says what to do instead."""


class AccuracyWarning(UserWarning):
    """A quadrature rule did not reach the accuracy that it aims at."""
