"""A classifier and its calibrator, fitted together by cross-validation."""
