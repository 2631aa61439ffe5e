"""How metrics read predictions, labels and weights."""
