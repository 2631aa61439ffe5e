"""Integrators over the posterior, one file each."""
