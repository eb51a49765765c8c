"""The rows of a summary merged by name: one line a name with its phases as columns, and lines in a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple

from ..frame import LOGGED_LANE, MODULE_PHASES, TRAINING_LANE, Phase
from ..summary import Row, Summary
from .name_tree import parent_name

# Access to a member of an enum costs 70 ns in Python 3.10 and 3.11, four times a row.
_RECOMPUTE: Final = Phase.RECOMPUTE
_BACKWARD: Final = Phase.BACKWARD
_PART_OF: Final = {phase: at for at, phase in enumerate(MODULE_PHASES)}


@dataclass(slots=True, eq=False)
class Line:
    """All rows of one name on one lane. It references its children but not its parent, so there is no cycle.

    ``total_ns`` counts nothing twice: a row inside another row of the same name is part of that row. ``parts`` are its
    time in forward, recompute (including the recompute inside the backward) and backward (without that recompute).
    """

    name: str
    lane: int
    rows: list[Row] = field(default_factory=list)
    total_ns: int = 0
    parts: list[int] = field(default_factory=lambda: [0, 0, 0])
    host_bound_ns: int = 0
    children: list[Line] = field(default_factory=list)
    adopted: list[Line] = field(default_factory=list)
    """Lines that become children, because part of their time is in this line."""

    @property
    def calls(self) -> int:
        """Calls in all recorded steps; a forward and its backward are one call."""
        return max(row.calls for row in self.rows)

    def limit_ns(self, clock_limit_ns: int) -> int:
        """Return the clock's limit for all calls of this line; logged durations have no such limit."""
        return 0 if self.lane == LOGGED_LANE else self.calls * clock_limit_ns

    def add(self, phase: Phase, ns: int, host_bound: float | None) -> None:
        """Add a row that is not inside another row of this line."""
        self.total_ns += ns
        self.host_bound_ns += round(ns * (host_bound or 0.0))
        part = _PART_OF.get(phase)
        if part is not None:
            self.parts[part] += ns

    def move_to_recompute(self, ns: int) -> None:
        """Count a recomputed forward inside this line's backward as recompute."""
        forward, recompute, backward = self.parts
        moved = min(ns, backward)
        self.parts = [forward, recompute + moved, backward - moved]

    @property
    def has_unknown_children(self) -> bool:
        """Whether spans ran in it whose rows name no parent, as they ran elsewhere, too; not known with recompute."""
        inside_ns = sum(row.total_ns - row.self_ns for row in self.rows) - sum(
            child.total_ns for child in self.children
        )
        # Share of a line's time from which spans inside it are in rows without a parent.
        return not self.parts[1] and inside_ns > 0.01 * self.total_ns

    def adopt(self) -> None:
        """Add the lines of ``adopted`` to the children: the time is then its own and that of all children."""
        if not self.adopted:
            return
        for line in self.adopted:
            line.adopt()
        self.children = sorted([*self.children, *self.adopted], key=_by_time)
        before_ns = max(self.total_ns, 1)
        self.total_ns = sum(row.self_ns for row in self.rows) + sum(child.total_ns for child in self.children)
        self.parts = [sum(child.parts[at] for child in self.children) for at in range(len(MODULE_PHASES))]
        for row in self.rows:
            if row.phase in _PART_OF:
                self.parts[_PART_OF[row.phase]] += row.self_ns
        self.host_bound_ns = round(self.host_bound_ns * self.total_ns / before_ns)

    @property
    def is_host_bound(self) -> bool:
        """Whether the device's queue was empty for more than half of its time."""
        return 2 * self.host_bound_ns > self.total_ns


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a summary: ``roots`` add up to the step; ``separate`` are of other threads and logged durations."""

    roots: tuple[Line, ...]
    separate: tuple[Line, ...]


def name_lines(summary: Summary) -> Lines:
    """Merge a summary's rows by name. Every list is in descending order of time."""
    training: list[Row] = []
    rest: dict[int, list[Row]] = {}
    for row in sorted(summary.rows, key=attrgetter("total_ns"), reverse=True):
        if row.lane == TRAINING_LANE:
            training.append(row)
        else:
            rest.setdefault(row.lane, []).append(row)
    separate: list[Line] = []
    for lane, rows in rest.items():
        separate += _logged(rows) if lane == LOGGED_LANE else _merge(rows)
    return Lines(tuple(_merge(training)), tuple(sorted(separate, key=_by_time)))


def _by_time(line: Line) -> tuple[int, str]:
    return -line.total_ns, line.name


class _RowPlace(NamedTuple):
    """The place of a row: its line, the names around it, the lines in whose backward it ran, whether recomputed."""

    phase: Phase
    line: Line
    names: tuple[str, ...]
    backwards: tuple[Line, ...]
    recomputed: bool


def _merge(rows: list[Row]) -> list[Line]:
    """Return the roots of one lane's lines. Rows are sorted by length, so the row around a row precedes it."""
    lines: dict[str, Line] = {}
    places: dict[str, list[_RowPlace]] = {}
    parents: dict[str, str] = {}
    for row in rows:
        name, phase, ns = row.name, row.phase, row.total_ns
        line = lines.get(name)
        if line is None:
            line = lines[name] = Line(name, row.lane)
            places[name] = []
        line.rows.append(row)
        names: tuple[str, ...]
        backwards: tuple[Line, ...]
        around = _row_around(phase, places.get(row.parent, ())) if row.parent is not None else None
        if around is None:
            names, backwards, recomputed = (name,), (), False
            line.add(phase, ns, row.host_bound)
        else:
            _, outer, names, backwards, recomputed = around
            if around.phase is _BACKWARD and outer not in backwards:
                backwards = (*backwards, outer)
            if name not in names:
                if not line.total_ns:
                    parents[name] = outer.name
                names = (*names, name)
                line.add(phase, ns, row.host_bound)
        if phase is _RECOMPUTE and not recomputed:
            recomputed = True
            for outer in backwards:
                outer.move_to_recompute(ns)
        places[name].append(_RowPlace(phase, line, names, backwards, recomputed))
    return _nest_by_name(lines, _grow(lines, parents))


def _nest_by_name(lines: dict[str, Line], roots: list[Line]) -> list[Line]:
    """Put a root below the one whose name begins its own, where it ran inside that one and elsewhere, too.

    A row has one parent, or none where it has several. Such a name would stand beside the one that contains a part of
    it, and the roots would add up to more than the step. The one above then has the time of both.
    """
    kept = {line.name: line for line in roots}
    for line in sorted(roots, key=lambda line: -len(line.name)):
        above = lines.get(parent_name(line.name, kept) or "")
        if above is not None and above.has_unknown_children:
            above.adopted.append(line)
            del kept[line.name]
    for line in kept.values():
        line.adopt()
    return sorted(kept.values(), key=_by_time)


def _row_around(phase: Phase, candidates: Sequence[_RowPlace]) -> _RowPlace | None:
    """Choose the row around a row of this phase among those of its parent's name; recompute runs in a backward."""
    best = None
    for place in candidates:
        if place.phase is phase:
            return place
        if best is None or (phase is _RECOMPUTE and place.phase is _BACKWARD):
            best = place
    return best


def _grow(lines: dict[str, Line], parents: dict[str, str]) -> list[Line]:
    """Add every line to its parent's children and return the roots."""
    roots: list[Line] = []
    for name, line in lines.items():
        if name in parents and _is_cycle(name, parents):
            del parents[name]
        (lines[parents[name]].children if name in parents else roots).append(line)
    for line in lines.values():
        if len(line.children) > 1:
            line.children.sort(key=_by_time)
    return sorted(roots, key=_by_time)


def _is_cycle(name: str, parents: dict[str, str]) -> bool:
    """Return whether a name is its own ancestor, as with names that call each other."""
    above: str | None = name
    # A longer chain of parents is treated as a cycle and cut.
    for _ in range(64):
        above = parents.get(above or "")
        if above is None or above == name:
            return above == name
    return True


def _logged(rows: list[Row]) -> list[Line]:
    """Nest logged durations by their names alone."""
    lines: dict[str, Line] = {}
    for row in rows:
        line = lines.setdefault(row.name, Line(row.name, row.lane))
        line.rows.append(row)
        line.total_ns += row.total_ns
    parents = {name: parent for name in lines if (parent := parent_name(name, lines)) is not None}
    return _grow(lines, parents)


def walk(lines: Iterable[Line], depth: int = 0, above: str = "") -> Iterator[tuple[Line, int, str]]:
    """Yield lines, parents first, with their depth and their name without their parent's."""
    for line in lines:
        yield line, depth, line.name.removeprefix(f"{above}/") if above else line.name
        yield from walk(line.children, depth + 1, line.name)
