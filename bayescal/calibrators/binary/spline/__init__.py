"""Natural cubic splines with a cross-validated penalty."""
