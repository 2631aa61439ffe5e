"""Intervals, differences, tests and reports of metrics."""
