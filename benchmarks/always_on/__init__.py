"""``python -m benchmarks.always_on``: the figures of an always-on profiler, each with its limit, in one table."""
