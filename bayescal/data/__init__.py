"""What users hand in: scores, labels, weights and groups, in memory or in blocks."""
