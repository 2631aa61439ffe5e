"""What papers print beside what this library finds: a page of docs/papers for each of them.

A module for each paper, with a function `page`. `python -m benchmarks.papers` writes the pages.
"""
