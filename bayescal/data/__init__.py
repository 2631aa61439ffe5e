"""User input: scores, labels, weights and groups, in memory or in blocks."""
