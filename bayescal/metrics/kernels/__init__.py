"""Calibration errors by kernels."""
