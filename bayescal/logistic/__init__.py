"""Logistic regression to soft targets, penalised or with priors, in batches."""
