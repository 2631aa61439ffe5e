"""Priors of generative models, written as text."""
