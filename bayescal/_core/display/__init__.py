"""Tables, progress and plots of objects."""
