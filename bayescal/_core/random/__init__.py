"""Random keys, generators, gamma variables and the no-U-turn sampler."""
