"""Calibration of the largest logits of each row, as returned by language models."""
