"""A Gaussian process on logits."""
