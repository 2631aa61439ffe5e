"""Monitoring of deployed models: tests of calibration that may be looked at after every row."""

from bayescal.monitoring._monitor import Monitor

__all__ = ["Monitor"]
