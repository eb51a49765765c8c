"""A variant: something attached to a model while a block of steps runs."""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

from .workloads import Workload

Family = Literal["bare", "autoprof", "floor", "others"]


class Times(NamedTuple):
    """Times of a block: the steps, the variant's work after each, its postponed work, and the whole."""

    steps_ns: list[int]
    ends_ns: list[int]
    flush_ns: int
    whole_ns: int


class Variant:
    """One way to run a workload; this one attaches nothing. ``end_step`` is timed, ``open`` and ``close`` are not."""

    family: ClassVar[Family] = "bare"
    name = "bare"
    label = "bare"
    least_warmup: ClassVar[int] = 0
    """Steps before a block at least, where steps are short: work that a session does once is no cost of a step."""

    def open(self, workload: Workload) -> None:
        """Attach whatever the variant attaches."""

    def end_step(self) -> None:
        """Do the variant's work at a step's end."""

    def flush(self) -> None:
        """Do the variant's postponed work; timed once a block and shared by its steps."""

    def close(self) -> None:
        """Take everything off again; called whatever happened, also in the middle of ``open``."""

    def remote_block(self, warmup: int, steps: int) -> Times | None:
        """Return the times of a block that another process ran; None where it runs here."""
        return None

    def shutdown(self) -> None:
        """End everything that outlives the blocks."""
