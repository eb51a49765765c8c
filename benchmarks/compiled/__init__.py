"""Referee the rows inside compiled graphs: ``python -m benchmarks.compiled``.

The models and their true times (``case``, ``known_lengths``, ``ten_times``, ``models``) were written without knowledge
of how autoprof finds these rows.
"""
