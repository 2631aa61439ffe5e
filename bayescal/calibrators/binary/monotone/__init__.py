"""Calibrators that assume only that the map is monotone."""
