"""The default for three or more classes: structured fits mixed by cross-validation."""
