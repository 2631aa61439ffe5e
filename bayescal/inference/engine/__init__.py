"""Compiled programs that condition on data sets and predict."""
