"""Calibration maps of two classes."""
