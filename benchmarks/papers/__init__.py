"""Pages of docs/papers: comparisons of published figures with those of this library.

There is a module for each paper, with a function `page`. `python -m benchmarks.papers` writes the
pages.
"""
