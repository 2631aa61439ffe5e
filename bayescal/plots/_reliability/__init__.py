"""Reliability diagrams: of one model, several models and classes, and as displays."""
