"""How work runs: threads, blocks, processes, precision and compilation."""
