"""Binary logistic regression."""
