"""Multinomial logistic regression of labels on scores of all classes, with squared penalties."""
