"""Monitoring of deployed models: tests of calibration that are valid after every row."""

from bayescal.monitoring._monitor import Monitor

__all__ = ["Monitor"]
