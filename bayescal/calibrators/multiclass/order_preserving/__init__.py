"""Networks that keep the ranking of the classes."""
