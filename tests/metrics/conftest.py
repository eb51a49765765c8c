"""Metrics: every test starts and ends with nothing of autoprof's in the process, as the engine's do."""

from left_behind import nothing_left

__all__ = ["nothing_left"]
