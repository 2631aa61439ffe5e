"""Logits and log probabilities of tokens."""
