"""Several ranks on one timeline: their clocks aligned, and the calls of collectives in which they meet."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from .._core.units import NS_PER_MS, NS_PER_S
from .._ranks import CallKey, CollectiveCall, StepCollectives
from ..frame import StepFrame
from ._rank_clocks import ClockShift, align_clocks
from ._timeline import GRID_NS, StepPlacement

MARGIN_STEPS: Final = 256
"""Steps on both sides of the window whose collectives align the clocks as well."""


class CollectiveLink(NamedTuple):
    """The part of one call in a collective: its arrow from the rank that entered before, and to the one after.

    ``kind`` is the kind of track that shows it: ``host`` or ``device``. ``last`` is the rank that entered last, and
    ``waited_ns`` how much later that was; None where the error of the clocks is larger.
    """

    kind: str
    flow: int
    comes_in: bool
    goes_out: bool
    last: int | None
    waited_ns: int | None


@dataclass(frozen=True, slots=True)
class RankTimeline:
    """The clocks of some ranks, the start of their common timeline, and by step and span their links."""

    shifts: Mapping[int, ClockShift] = field(default_factory=dict)
    origin_unix_ns: int | None = None
    links: Mapping[int, Mapping[tuple[int, int], CollectiveLink]] = field(default_factory=dict)

    def describe(self, rank: int) -> str | None:
        """Return in words how a rank's clock was corrected; None where it has the clock of the first rank."""
        shift = self.shifts.get(rank)
        if shift is None or (shift.error_ns == 0 and not shift.calls):
            return None
        if shift.error_ns is None:
            return f"clock not aligned: no collective in common with rank {shift.reference}"
        drift = f", drift {shift.drift * 1e6:+.1f} ppm" if shift.drift else ""
        return (
            f"clock {shift.offset_ns / NS_PER_S:+.6f} s ± {shift.error_ns / NS_PER_MS:.3f} ms against rank "
            f"{shift.reference}{drift} ({shift.calls} collectives)"
        )

    @property
    def summary(self) -> str | None:
        """The error of the clocks in words; None where all ranks have one clock."""
        errors = [shift.error_ns for shift in self.shifts.values() if shift.calls and shift.error_ns is not None]
        parts = [f"clocks aligned to ± {max(errors) / NS_PER_MS:.3f} ms by collectives"] if errors else []
        unknown = [str(rank) for rank, shift in self.shifts.items() if shift.error_ns is None]
        if unknown:
            parts.append(f"not aligned, because it has no collective in common: the clock of rank {', '.join(unknown)}")
        return "; ".join(parts) or None

    def place(self, rank: int, frame: StepFrame) -> StepFrame:
        """Return a frame of this rank with its start on the common clock."""
        shift = self.shifts.get(rank)
        if shift is None or not (shift.offset_ns or shift.drift):
            return frame
        return StepFrame.of(**{**vars(frame), "start_unix_ns": shift.correct(frame.start_unix_ns)})


def align_ranks(
    steps: Mapping[int, Sequence[StepCollectives]], clocks: Mapping[int, Hashable | None], first: int, last: int | None
) -> RankTimeline:
    """Align the ranks by all their steps, and link the calls of those from ``first`` to ``last`` (None: the end)."""
    shifts = align_clocks({rank: _on_own_clock(held) for rank, held in steps.items()}, clocks)
    window = {
        rank: [
            one._replace(start_unix_ns=shifts[rank].correct(one.start_unix_ns))
            for one in held
            if one.step >= first and (last is None or one.step <= last)
        ]
        for rank, held in steps.items()
    }
    origin = min((held[0].start_unix_ns for held in window.values() if held), default=None)
    return RankTimeline(shifts, origin, _link(window, origin, shifts))


def _on_own_clock(steps: Iterable[StepCollectives]) -> dict[CallKey, CollectiveCall]:
    """Return the calls of one rank in nanoseconds of its own wall clock."""
    placement, found = StepPlacement(), {}
    for one in steps:
        _, device_ns = placement.place(one)
        begin_ns = device_ns + (placement.origin_unix_ns or 0) if one.on_device else one.start_unix_ns
        found.update({call.key: call.at(begin_ns) for call in one.calls})
    return found


def _link(
    window: Mapping[int, Sequence[StepCollectives]], origin: int | None, shifts: Mapping[int, ClockShift]
) -> dict[int, dict[tuple[int, int], CollectiveLink]]:
    """Return the links of each rank, where the timeline shows its steps."""
    meetings: dict[CallKey, list[tuple[int, int, CollectiveCall, str]]] = {}
    for rank, steps in window.items():
        placement = StepPlacement(origin)
        for one in steps:
            host_ns, device_ns = placement.place(one)
            for call in one.calls:
                shown = call.at(device_ns if one.on_device else host_ns)
                kind = "device" if one.on_device else "host"
                point = max(shown.seen_ns, 0) // GRID_NS
                meetings.setdefault(call.key, []).append((point, rank, shown, kind))
    links: dict[int, dict[tuple[int, int], CollectiveLink]] = {rank: {} for rank in window}
    for number, met in enumerate(met for met in meetings.values() if len(met) > 1):
        met.sort(key=lambda one: one[:2])
        last = _last_to_enter(met, shifts)
        for at, (_, rank, call, kind) in enumerate(met):
            waited_ns = None if last is None else met[-1][2].seen_ns - call.seen_ns
            # The first number of arrows between ranks: above those of arrows inside a rank.
            link = CollectiveLink(kind, (1 << 60) + number, at > 0, at < len(met) - 1, last, waited_ns)
            links[rank][call.key[0], call.span] = link
    return links


def _last_to_enter(met: list[tuple[int, int, CollectiveCall, str]], shifts: Mapping[int, ClockShift]) -> int | None:
    """Return the rank that entered last, None where the error of the clocks is larger than its lead."""
    (_, second, before, _), (_, rank, last, _) = met[-2:]
    errors = shifts[second].error_ns, shifts[rank].error_ns
    if errors[0] is None or errors[1] is None:
        return None
    error_ns = 0 if shifts[second] == shifts[rank] else errors[0] + errors[1]
    return rank if last.seen_ns - before.seen_ns > error_ns else None
