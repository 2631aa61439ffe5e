"""Rows that come in blocks: sources, passes, checkpoints."""
