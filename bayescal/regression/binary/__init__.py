"""Logistic regression of two classes."""
