"""Folds of cross-validation, into which rows with equal scores are dealt."""
