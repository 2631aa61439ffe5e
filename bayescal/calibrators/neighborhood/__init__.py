"""Calibration by averages over neighboring rows."""
