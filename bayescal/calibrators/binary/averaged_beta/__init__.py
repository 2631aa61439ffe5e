"""Beta calibration averaged over its hyperparameters by their evidence."""
