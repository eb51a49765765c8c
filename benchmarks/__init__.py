"""Measure the cost of autoprof beside the floor and beside alternatives: ``python -m benchmarks``.

Every variant of a table is measured in one process, in blocks that take turns in an order drawn anew each round, so
that a machine that slows down slows all of them. Nothing here is a test: a number on a busy machine proves nothing.
"""
