"""Calibrators that are made of other calibrators."""
