"""Calibration errors in bins, cells, and groups."""
