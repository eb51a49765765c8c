"""Durations that a program measured itself → the frame of a step, and how the names lie in one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from .._stats.aggregate import MAX_ROWS
from .._stats.name_tree import parent_name
from ..frame import LOGGED_LANE, TRAINING_LANE, Layout, Phase, StepFrame
from ..summary import Row, Summary

COMPARED: Final = 32
"""Durations of a step held against one another: it is done pair by pair."""
SURE: Final = 20
AGAIN: Final = 50
"""The first steps, and then each so many, are looked at: a program's nesting hardly changes, and looking costs."""
LAYOUTS: Final = 128
"""Layouts remembered; a program that makes up names anew each step makes a new one each time instead."""


class Duration(NamedTuple):
    """One call of ``log_timing``: how long, when it was logged, and by which thread."""

    name: str
    ns: int
    end_ns: int
    thread: int

    @property
    def start_ns(self) -> int:
        """When it began, if it was logged when it ended."""
        return self.end_ns - self.ns


class Step(NamedTuple):
    """One step: its frame, and the part of it that some name covers."""

    frame: StepFrame
    covered_ns: int


class Steps:
    """Make frames of durations. Several of one name in a step add up, and are counted."""

    def __init__(self, now_ns: int) -> None:
        self.nesting = Nesting()
        self._begin_ns = now_ns
        self._number = 0
        self._layouts: dict[tuple[tuple[str, int], ...], Layout] = {}

    def close(
        self, durations: Sequence[Duration], now_ns: int, now_unix_ns: int, thread: int, work_ns: int = 0
    ) -> Step:
        """Close a step at ``now_ns``; ``thread`` is the one that trains, ``work_ns`` what the last call cost.

        The step is as long as the time since the one before (the first begins with its first duration), and at least as
        long as its longest name: durations that are replayed take no time of their own.
        """
        self._number += 1
        if self._number == 1 and durations:
            self._begin_ns = max(self._begin_ns, min(one.start_ns for one in durations))
        totals: dict[str, int] = {}
        calls: dict[str, int] = {}
        starts: dict[str, int] = {}
        for one in durations:
            totals[one.name] = totals.get(one.name, 0) + one.ns
            calls[one.name] = calls.get(one.name, 0) + 1
            starts.setdefault(one.name, max(one.start_ns - self._begin_ns, 0))
        if any(one.thread != thread for one in durations) and len(self.nesting.beside) < MAX_ROWS:
            self.nesting.beside.update(one.name for one in durations if one.thread != thread)
        own = [one for one in durations if one.thread == thread and parent_name(one.name, totals) is None]
        longest = max((totals[one.name] for one in own), default=0)
        step_ns = max(now_ns - self._begin_ns, longest)
        covered = self.nesting.look(own, self._begin_ns, self._number)
        frame = StepFrame(
            step=self._number,
            start_unix_ns=now_unix_ns - step_ns,
            duration_ns=step_ns,
            layout=self._layout(tuple(calls.items())),
            start_ns=np.fromiter(starts.values(), np.int64, len(starts)),
            host_ns=np.fromiter(totals.values(), np.int64, len(totals)),
            overhead_ns=work_ns,
        )
        self._begin_ns = now_ns
        return Step(frame, min(longest if covered is None else covered, step_ns))

    def _layout(self, calls: tuple[tuple[str, int], ...]) -> Layout:
        layout = self._layouts.get(calls)
        if layout is None:
            if len(self._layouts) >= LAYOUTS:
                self._layouts.clear()
            count = len(calls)
            layout = self._layouts[calls] = Layout(
                names=tuple(name for name, _ in calls),
                fqns=(None,) * count,
                phases=(Phase.USER,) * count,
                parents=(-1,) * count,
                calls=tuple(number for _, number in calls),
                lanes=(LOGGED_LANE,) * count,
            )
        return layout


@lru_cache(maxsize=LAYOUTS)
def _training_layout(layout: Layout) -> Layout:
    names = {name: at for at, name in enumerate(layout.names)}
    parents = [names[outer] if (outer := parent_name(name, names)) is not None else -1 for name in layout.names]
    return replace(layout, parents=tuple(parents), lanes=(TRAINING_LANE,) * len(layout))


def on_training_lane(frame: StepFrame) -> StepFrame:
    """Return the frame with its names where the rules look for the causes of long steps."""
    return replace(frame, layout=_training_layout(frame.layout))


class Nesting:
    """Which names lie inside which others, by when they ran: ``parents`` has None where that is not always so.

    ``Forward`` and ``VRT`` of one step are two names without a slash between them. Where the one always ran inside the
    other, adding both up would count it twice. ``beside`` are the names of threads that do not train.
    """

    def __init__(self) -> None:
        self.parents: dict[str, str | None] = {}
        self.beside: set[str] = set()

    def look(self, durations: Sequence[Duration], begin_ns: int, step: int) -> int | None:
        """Learn from a step's durations of one thread; return how much of it they cover, None where none can tell.

        A duration was logged when it ended. One that would have begun before its step, by more than a hundredth of
        itself (two clocks), was measured elsewhere, or is replayed: of such a step nothing is learnt.
        """
        if any(one.start_ns + one.ns // 100 < begin_ns for one in durations):
            return None
        if len(durations) <= COMPARED and (step <= SURE or step % AGAIN == 0):
            found: dict[str, set[str | None]] = {}
            for one in durations:
                found.setdefault(one.name, set()).add(_around(one, durations))
            for name, around in found.items():
                self._note(name, around.pop() if len(around) == 1 else None)
        return _union_ns(durations)

    def _note(self, name: str, parent: str | None) -> None:
        if self.parents.setdefault(name, parent) != parent:
            self.parents[name] = None
        above = self.parents[name]
        while above is not None:
            if above == name:  # names that take turns in holding one another
                self.parents[name] = None
                return
            above = self.parents.get(above)


def _around(inner: Duration, durations: Sequence[Duration]) -> str | None:
    """Return the shortest duration of another name that this one ran in.

    The two were logged a little after they ended, one maybe more than the other: a tenth of the shorter is allowed.
    """
    late = inner.ns // 10
    holding = [
        one
        for one in durations
        if one.ns > inner.ns
        and one.name != inner.name
        and one.start_ns - late <= inner.start_ns
        and inner.end_ns <= one.end_ns + late
    ]
    return min(holding, key=lambda one: one.ns).name if holding else None


def _union_ns(durations: Sequence[Duration]) -> int:
    covered = reached = 0
    for start, end in sorted((one.start_ns, one.end_ns) for one in durations):
        if end > reached:
            covered += end - (max(start, reached) if covered else start)
            reached = end
    return covered


def account(summary: Summary, nesting: Nesting, covered_ns: int) -> Summary:
    """Make the rows of durations the account of their steps, as far as they add up.

    A name stands below the one its slashes say, else below the one it ran in. What does not fit into what it stands
    below (parts that ran at the same time) stays beside the account, with all below it.
    """
    rows = {row.name: row for row in summary.rows if row.name not in nesting.beside}
    below: dict[str | None, list[str]] = {}
    for name in rows:
        parent = parent_name(name, rows) or nesting.parents.get(name)
        below.setdefault(parent if parent in rows else None, []).append(name)
    made = {row.name: row for row in summary.rows}
    if not _hang(None, summary.total_step_ns, rows, below, made):
        phases = {Phase.USER: covered_ns, Phase.OTHER: summary.total_step_ns - covered_ns}
        return replace(summary, phases=phases)
    inside = sum(row.self_ns for row in made.values() if row.lane == TRAINING_LANE)
    phases = {Phase.USER: inside, Phase.OTHER: summary.total_step_ns - inside}
    return replace(summary, rows=tuple(made[row.name] for row in summary.rows), phases=phases)


def _hang(
    parent: str | None, room_ns: int, rows: dict[str, Row], below: dict[str | None, list[str]], made: dict[str, Row]
) -> bool:
    """Put the names below ``parent`` into its time; say whether they fit."""
    names = below.get(parent, [])
    if sum(rows[name].total_ns for name in names) > room_ns:
        return False
    for name in names:
        row = rows[name]
        fits = _hang(name, row.total_ns, rows, below, made)
        inside = sum(rows[child].total_ns for child in below.get(name, [])) if fits else 0
        made[name] = replace(row, lane=TRAINING_LANE, parent=parent, self_ns=row.total_ns - inside)
    return True
