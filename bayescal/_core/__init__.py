"""Numerics, checks and small utilities that every other layer builds upon."""
