"""The compiled programs that condition on data sets and predict."""
