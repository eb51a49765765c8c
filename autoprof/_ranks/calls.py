"""The calls of collectives in the recorded steps of a rank, each with a key that the other ranks have for it too."""

from __future__ import annotations

from typing import Final, NamedTuple

from .._stats.layout_cache import cached_by_layout
from ..frame import NOT_MEASURED, TRAINING_LANE, Layout, Phase, StepFrame

MEETINGS: Final = ("DDP", "all_gather", "all_reduce", "all_to_all", "barrier", "reduce_scatter")
"""Communication that no rank of its group leaves before all have entered it, by the beginning of its name.

The name has the ranks of the group where these are not all.
"""
UNKNOWN_MEMBERS: Final = " (unknown ranks)"
"""The end of the name of a call in a group whose ranks are unknown: which calls of other ranks it meets is unknown."""
DDP: Final = "Comm/DDP"

CallKey = tuple[int, str, int]
"""The step, the name, and the number of the call among those of this name in the step, from 0."""


class CollectiveCall(NamedTuple):
    """One call on one rank. The rank entered it at ``start_ns`` or later, and had left it by ``end_ns``.

    Times are nanoseconds: since the step's start in ``StepCollectives``, of the rank's clock in ``align_clocks``.
    """

    key: CallKey
    start_ns: int
    end_ns: int

    def at(self, begin_ns: int) -> CollectiveCall:
        """Return the call of a step that begins at this time."""
        return CollectiveCall(self.key, begin_ns + self.start_ns, begin_ns + self.end_ns)


class StepCollectives(NamedTuple):
    """One step of one rank: where it lies in time, and the calls in which all ranks of a group meet.

    ``on_device``: the calls' times are those of the device.
    """

    step: int
    start_unix_ns: int
    duration_ns: int
    device_duration_ns: int | None
    on_device: bool
    calls: tuple[CollectiveCall, ...]


def step_collectives(frame: StepFrame) -> StepCollectives:
    """Return the calls of a step.

    DDP starts its last communication before its span begins: with the last gradient, so after the last backward of a
    module began. Where a step waits for communication that it started before, all its calls last until the last such
    wait: which call a wait belongs to is unknown.
    """
    meetings, waits, backwards = _columns(frame.layout)
    on_device = frame.device_start_ns is not None and frame.device_ns is not None
    starts, lengths = frame.start_ns, frame.host_ns
    if frame.device_start_ns is not None and frame.device_ns is not None:
        starts, lengths = frame.device_start_ns, frame.device_ns
    waited_ns = max((int(starts[span] + lengths[span]) for span in waits if lengths[span] != NOT_MEASURED), default=0)
    calls = []
    for span, name, number in meetings:
        if lengths[span] == NOT_MEASURED:
            continue
        start_ns = int(starts[span])
        end_ns = max(start_ns + int(lengths[span]), waited_ns)
        if name.startswith(DDP):
            before = (int(starts[at]) for at in backwards if lengths[at] != NOT_MEASURED and starts[at] <= start_ns)
            start_ns = max(before, default=0)
        calls.append(CollectiveCall((frame.step, name, number), start_ns, end_ns))
    place = frame.start_unix_ns, frame.duration_ns, frame.device_duration_ns
    return StepCollectives(frame.step, *place, on_device, tuple(calls))


@cached_by_layout
def _columns(layout: Layout) -> tuple[list[tuple[int, str, int]], list[int], list[int]]:
    """Return the spans of calls with their names and numbers, of waits, and of backwards of modules."""
    meetings, waits, backwards = list[tuple[int, str, int]](), list[int](), list[int]()
    seen: dict[str, int] = {}
    for span, (name, phase) in enumerate(zip(layout.names, layout.phases, strict=True)):
        if layout.lanes[span] != TRAINING_LANE:
            continue
        if phase is Phase.BACKWARD and layout.fqns[span] is not None:
            backwards.append(span)
        # The wait for communication that was started earlier in the step.
        elif phase is Phase.COMM and name == "Comm/wait":
            waits.append(span)
        elif phase is Phase.COMM and _is_meeting(name):
            number = seen[name] = seen.get(name, -1) + 1
            meetings.append((span, name, number))
    return meetings, waits, backwards


def _is_meeting(name: str) -> bool:
    return name.removeprefix("Comm/").startswith(MEETINGS) and not name.endswith(UNKNOWN_MEMBERS)
