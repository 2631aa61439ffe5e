"""The default of three and more classes: structured fits mixed by cross-validation."""
