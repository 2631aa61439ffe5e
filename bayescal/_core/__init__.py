"""Numerics and small utilities that all other layers build on."""
