"""Weighted, penalized logistic regression of two and more classes: fits and posteriors."""
