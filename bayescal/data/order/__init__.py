"""The order of rows and of classes, tied rows, and cells of neighboring scores."""
