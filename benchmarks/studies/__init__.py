"""Experiments of the papers, on real data and on data with a known truth.

``python -m benchmarks.studies NAME`` runs one of them. An interrupted run can be started again: it
resumes from the finished parts.
"""
