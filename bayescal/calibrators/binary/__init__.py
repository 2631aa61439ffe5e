"""Binary calibration maps."""
