"""Base classes of calibrators, and their posteriors, reports, files and functions."""
