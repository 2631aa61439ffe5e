"""Calibration of the largest logits of each row, as language models give them."""
