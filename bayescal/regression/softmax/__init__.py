"""Softmax regression of two or more classes."""
