"""Durations that a program measures itself: one frame per step, and the nesting of their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from .._reports.name_tree import parent_name
from .._stats.cut_statistics import MAX_ROWS
from ..frame import LOGGED_LANE, TRAINING_LANE, Layout, Phase, StepFrame
from ..summary import Row, Summary

MAX_COMPARED: Final = 32
"""Durations of a step that are compared with each other: the time grows with the square of their number."""
FIRST_STEPS: Final = 20
"""Steps at the beginning whose nesting is examined."""
EXAMINE_EVERY: Final = 50
"""Later only each 50th step: the nesting of a program hardly changes, and examining it takes time."""
MAX_LAYOUTS: Final = 128
"""Layouts remembered. A program that invents names in each step needs a new layout in each step."""


class Duration(NamedTuple):
    """One call of ``log_timing``."""

    name: str
    ns: int
    end_ns: int
    """The time of the call."""
    thread: int

    @property
    def start_ns(self) -> int:
        """The start, if the duration was logged at its end."""
        return self.end_ns - self.ns


class TimedStep(NamedTuple):
    """The frame of one step, and the time in it that names cover."""

    frame: StepFrame
    covered_ns: int


class StepBuilder:
    """Builds the frames of steps from durations. Durations of one name in a step add up and are counted."""

    def __init__(self, now_ns: int) -> None:
        self.nesting = Nesting()
        self._begin_ns = now_ns
        self._number = 0
        self._layouts: dict[tuple[tuple[str, int], ...], Layout] = {}

    def build(
        self, durations: Sequence[Duration], now_ns: int, now_unix_ns: int, thread: int, overhead_ns: int = 0
    ) -> TimedStep:
        """Build the step that ends at ``now_ns``; ``thread`` is the training thread.

        The step lasts from the end of the one before (the first: from the start of its first duration). It is at least
        as long as its longest name: replayed durations are logged faster than they passed.
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
        if any(one.thread != thread for one in durations) and len(self.nesting.other_threads) < MAX_ROWS:
            self.nesting.other_threads.update(one.name for one in durations if one.thread != thread)
        top_level = [one for one in durations if one.thread == thread and parent_name(one.name, totals) is None]
        longest = max((totals[one.name] for one in top_level), default=0)
        step_ns = max(now_ns - self._begin_ns, longest)
        covered = self.nesting.observe(top_level, self._begin_ns, self._number)
        frame = StepFrame(
            step=self._number,
            start_unix_ns=now_unix_ns - step_ns,
            duration_ns=step_ns,
            layout=self._layout(tuple(calls.items())),
            start_ns=np.fromiter(starts.values(), np.int64, len(starts)),
            host_ns=np.fromiter(totals.values(), np.int64, len(totals)),
            overhead_ns=overhead_ns,
        )
        self._begin_ns = now_ns
        return TimedStep(frame, min(longest if covered is None else covered, step_ns))

    def _layout(self, calls: tuple[tuple[str, int], ...]) -> Layout:
        layout = self._layouts.get(calls)
        if layout is None:
            if len(self._layouts) >= MAX_LAYOUTS:
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


@lru_cache(maxsize=MAX_LAYOUTS)
def _training_layout(layout: Layout) -> Layout:
    names = {name: at for at, name in enumerate(layout.names)}
    parents = [names[outer] if (outer := parent_name(name, names)) is not None else -1 for name in layout.names]
    return replace(layout, parents=tuple(parents), lanes=(TRAINING_LANE,) * len(layout))


def on_training_lane(frame: StepFrame) -> StepFrame:
    """Return the frame with its names on the training lane, where the rules search the causes of long steps."""
    return replace(frame, layout=_training_layout(frame.layout))


class Nesting:
    """The names that always ran inside another name: without it, adding up both would count the inner one twice.

    ``Forward`` and ``VRT`` have no slash between them, so the nesting is found from the times of the calls.
    """

    def __init__(self) -> None:
        self.parents: dict[str, str | None] = {}
        """The innermost name around each name; None if it is not always the same."""
        self.other_threads: set[str] = set()
        """Names logged by other threads than the training thread."""

    def observe(self, durations: Sequence[Duration], begin_ns: int, step: int) -> int | None:
        """Update the nesting from the durations of one thread in a step; return the time they cover.

        A duration that began before the step, by more than 1 % of itself (two clocks), was replayed or measured
        elsewhere. Such a step is ignored and covers an unknown time: None.
        """
        if any(one.start_ns + one.ns // 100 < begin_ns for one in durations):
            return None
        if len(durations) <= MAX_COMPARED and (step <= FIRST_STEPS or step % EXAMINE_EVERY == 0):
            found: dict[str, set[str | None]] = {}
            for one in durations:
                found.setdefault(one.name, set()).add(_innermost_around(one, durations))
            for name, parents in found.items():
                self._set_parent(name, parents.pop() if len(parents) == 1 else None)
        return _union_ns(durations)

    def _set_parent(self, name: str, parent: str | None) -> None:
        if self.parents.setdefault(name, parent) != parent:
            self.parents[name] = None
        above = self.parents[name]
        while above is not None:
            if above == name:  # two names that contain each other
                self.parents[name] = None
                return
            above = self.parents.get(above)


def _innermost_around(inner: Duration, durations: Sequence[Duration]) -> str | None:
    """Return the name of the shortest duration of another name that contains this one.

    Both are logged a little after their ends, so 10 % of the shorter one is allowed at both ends.
    """
    tolerance = inner.ns // 10
    outer = [
        one
        for one in durations
        if one.ns > inner.ns
        and one.name != inner.name
        and one.start_ns - tolerance <= inner.start_ns
        and inner.end_ns <= one.end_ns + tolerance
    ]
    return min(outer, key=lambda one: one.ns).name if outer else None


def _union_ns(durations: Sequence[Duration]) -> int:
    """Return the time covered by at least one duration."""
    covered = reached = 0
    for start, end in sorted((one.start_ns, one.end_ns) for one in durations):
        if end > reached:
            covered += end - (max(start, reached) if covered else start)
            reached = end
    return covered


def nest_rows(summary: Summary, nesting: Nesting, covered_ns: int) -> Summary:
    """Return the summary with its rows nested, so that children and self add up to their parent.

    The parent of a name is given by its slashes, else by the nesting. Names that are longer together than their parent
    (they ran at the same time) stay on the lane of logged names, with all names below them.
    """
    rows = {row.name: row for row in summary.rows if row.name not in nesting.other_threads}
    children: dict[str | None, list[str]] = {}
    for name in rows:
        parent = parent_name(name, rows) or nesting.parents.get(name)
        children.setdefault(parent if parent in rows else None, []).append(name)
    nested = {row.name: row for row in summary.rows}
    if not _nest_children(None, summary.total_step_ns, rows, children, nested):
        phases = {Phase.USER: covered_ns, Phase.OTHER: summary.total_step_ns - covered_ns}
        return replace(summary, phases=phases)
    inside = sum(row.self_ns for row in nested.values() if row.lane == TRAINING_LANE)
    phases = {Phase.USER: inside, Phase.OTHER: summary.total_step_ns - inside}
    return replace(summary, rows=tuple(nested[row.name] for row in summary.rows), phases=phases)


def _nest_children(
    parent: str | None, parent_ns: int, rows: dict[str, Row], children: dict[str | None, list[str]],
    nested: dict[str, Row],
) -> bool:  # fmt: skip
    """Nest the names below ``parent`` if they fit into its time; return whether they do."""
    names = children.get(parent, [])
    if sum(rows[name].total_ns for name in names) > parent_ns:
        return False
    for name in names:
        row = rows[name]
        fits = _nest_children(name, row.total_ns, rows, children, nested)
        inside = sum(rows[child].total_ns for child in children.get(name, [])) if fits else 0
        nested[name] = replace(row, lane=TRAINING_LANE, parent=parent, self_ns=row.total_ns - inside)
    return True
