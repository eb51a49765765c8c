"""Seeded faults on four ranks of real training over gloo, and healthy runs: is the slow rank named with its place?

``python -m benchmarks.rank_faults`` runs them, prints a table and writes JSON. The truth is known to the program; the
verdict is read from rank 0's summary, with autoprof's default settings.
"""
