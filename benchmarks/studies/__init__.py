"""The papers' experiments: on real data, and where the truth is known.

``python -m benchmarks.studies NAME`` runs one. It can be killed and started again: it goes on from
what it finished.
"""
