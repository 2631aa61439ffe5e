"""Proper scores, accuracy, costs of decisions, and errors beside a known truth."""
