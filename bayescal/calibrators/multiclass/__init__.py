"""Multi-class calibration maps, for two or more classes."""
