"""Calibration maps of two or more classes."""
