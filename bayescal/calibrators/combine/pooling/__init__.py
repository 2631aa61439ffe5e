"""Calibration by groups, with partial pooling."""
