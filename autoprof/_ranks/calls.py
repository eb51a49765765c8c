"""The calls of collectives in the recorded steps of a rank, each with a key that the other ranks have for it too."""

from __future__ import annotations

from typing import Final

from .._stats.layout_cache import cached_by_layout
from ..frame import NOT_MEASURED, TRAINING_LANE, Layout, Phase, StepFrame

MEETINGS: Final = ("DDP", "all_gather", "all_reduce", "all_to_all", "barrier", "reduce_scatter")
"""Communication that no rank of its group leaves before all have entered it, by the beginning of its name.

The name has the ranks of the group where these are not all.
"""
UNKNOWN_MEMBERS: Final = " (unknown ranks)"
"""The end of the name of a call in a group whose ranks are unknown: which calls of other ranks it meets is unknown."""

CallKey = tuple[int, str, int]
"""The step, the name, and the number of the call among those of this name in the step, from 0."""


def call_ends(frame: StepFrame, begin_ns: int) -> dict[CallKey, int]:
    """Return when the rank had left each call in which all ranks of a group meet, in a step that begins at this time.

    Where a step waits for communication that it started before, all its calls last until the last such wait: which
    call a wait belongs to is unknown.
    """
    meetings, waits = _columns(frame.layout)
    starts, lengths = frame.start_ns, frame.host_ns
    if frame.device_start_ns is not None and frame.device_ns is not None:
        starts, lengths = frame.device_start_ns, frame.device_ns
    ends = (begin_ns + starts + lengths).tolist()
    waited_ns = max((ends[span] for span in waits if lengths[span] != NOT_MEASURED), default=0)
    return {
        (frame.step, name, number): max(ends[span], waited_ns)
        for span, name, number in meetings
        if lengths[span] != NOT_MEASURED
    }


@cached_by_layout
def _columns(layout: Layout) -> tuple[list[tuple[int, str, int]], list[int]]:
    """Return the spans of calls with their names and numbers, and of waits for calls started earlier in the step."""
    meetings, waits = list[tuple[int, str, int]](), list[int]()
    seen: dict[str, int] = {}
    for span, (name, phase) in enumerate(zip(layout.names, layout.phases, strict=True)):
        if layout.lanes[span] != TRAINING_LANE or phase is not Phase.COMM:
            continue
        if name == "Comm/wait":
            waits.append(span)
        elif name.removeprefix("Comm/").startswith(MEETINGS) and not name.endswith(UNKNOWN_MEMBERS):
            number = seen[name] = seen.get(name, -1) + 1
            meetings.append((span, name, number))
    return meetings, waits
