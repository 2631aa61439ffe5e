"""Gauss quadrature on the box that holds the posterior."""
