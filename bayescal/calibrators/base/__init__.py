"""What every calibrator builds upon: contract, posteriors, reports, files and functions."""
