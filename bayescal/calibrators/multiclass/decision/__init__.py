"""Decision calibration."""
