"""Notes on threads, copies and trends that may cost time, but of which no figure of a run shows how much."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..base.units import format_ms, format_percent
from ._contention import is_crowded
from ._evidence import Evidence


def setting_notes(run: Evidence, found: Collection[str | None] = ()) -> Iterator[str]:
    """Yield the notes on a run; a thread of which a finding has the name needs none."""
    if run.facts.trains_copy:
        yield (
            "an optimizer trains a copy of the model: its modules have no rows, because only the model given to "
            "autoprof.instrument is recorded; give it each copy, in a session of its own"
        )
    for thread in (one for one in run.facts.threads if one.name not in found):
        yield (
            f"thread {thread.described} takes {format_percent(thread.cores)} of a processor: while it runs Python it "
            "holds the interpreter (GIL), and the training thread waits; another process would not"
        )
    yield from _trend(run)


def _trend(run: Evidence) -> Iterator[str]:
    """Yield a note on steps that get longer from quarter to quarter of the run."""
    growth = None if is_crowded(run) else run.series.growth(explained=run.facts.explained)
    if growth is not None:
        first, last = format_ms(growth.first_ns), format_ms(growth.last_ns)
        yield f"steps get longer: from {first} in the first quarter of the run to {last} in the last one"
