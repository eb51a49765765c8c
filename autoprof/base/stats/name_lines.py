"""The rows of a summary merged by name: one line a name with its phases as columns, and lines in a tree."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from ..frame import LOGGED_LANE, MODULE_PHASES, TRAINING_LANE, Phase
from ..summary import Row, Summary

_PART_OF: Final = {phase: at for at, phase in enumerate(MODULE_PHASES)}


def parent_name(name: str, names: Container[str]) -> str | None:
    """Return the longest of ``names`` that is a proper prefix of ``name`` in whole segments: ``A`` for ``A/B/C``."""
    prefix = name.rpartition("/")[0]
    while prefix and prefix not in names:
        prefix = prefix.rpartition("/")[0]
    return prefix or None


@dataclass(slots=True, eq=False)
class Line:
    """All rows of one name on one lane, the longest first, and the lines inside it.

    ``total_ns`` counts nothing twice: a row inside another row of the same name is part of that row. ``parts`` are its
    time in forward, recompute (including the recompute inside the backward) and backward (without that recompute).
    """

    name: str
    rows: list[Row] = field(default_factory=list)
    total_ns: int = 0
    parts: list[int] = field(default_factory=lambda: [0, 0, 0])
    host_bound_ns: int = 0
    children: list[Line] = field(default_factory=list)

    @property
    def calls(self) -> int:
        """Calls in all recorded steps; a forward is one, however often a backward pass goes through it."""
        spans = max((row.calls for row in self.rows), default=0)
        return next((row.calls for row in self.rows if row.phase is Phase.FORWARD), spans)

    @property
    def is_host_bound(self) -> bool:
        """Whether the device's queue was empty for more than half of its time."""
        return 2 * self.host_bound_ns > self.total_ns

    def limit_ns(self, clock_limit_ns: int) -> int:
        """Return the clock's limit for all calls of this line; logged durations have no such limit."""
        return 0 if self.rows[0].lane == LOGGED_LANE else max(row.calls for row in self.rows) * clock_limit_ns

    def add(self, row: Row) -> None:
        """Add the time of a row that is not inside another row of this line."""
        self.total_ns += row.total_ns
        self.host_bound_ns += round(row.total_ns * (row.host_bound or 0.0))
        if row.phase in _PART_OF:
            self.parts[_PART_OF[row.phase]] += row.total_ns

    def move_to_recompute(self, ns: int) -> None:
        """Count a forward that is recomputed inside this line's backward as recompute."""
        forward, recompute, backward = self.parts
        moved = min(ns, backward)
        self.parts = [forward, recompute + moved, backward - moved]


def name_lines(summary: Summary) -> tuple[list[Line], list[Line]]:
    """Merge a summary's rows by name; return the roots of the step's time, then those outside it.

    The first add up to the step; the others are of other threads and logged durations. Every list is in descending
    order of time.
    """
    lanes: dict[int, list[Row]] = {TRAINING_LANE: []}
    for row in _longest_first(summary.rows):
        lanes.setdefault(row.lane, []).append(row)
    roots = _merge(lanes.pop(TRAINING_LANE))
    separate = [line for lane, rows in lanes.items() for line in _merge(rows, by_name=lane == LOGGED_LANE)]
    return roots, sorted(separate, key=by_time)


def _longest_first(rows: Iterable[Row]) -> list[Row]:
    """Return rows in descending order of time; of two that take equally long, the one around the other is first."""
    parents = {row.name: row.parent for row in rows if row.parent is not None}

    def order(row: Row) -> tuple[int, int]:
        return -row.total_ns, sum(1 for _ in islice(_chain(row.parent, parents), 99))  # names may contain each other

    return sorted(rows, key=order)


def by_time(line: Line) -> tuple[int, str]:
    """Return the key that sorts lines in descending order of time."""
    return -line.total_ns, line.name


def _merge(rows: list[Row], *, by_name: bool = False) -> list[Line]:
    """Return the roots of one lane's lines. Rows are sorted by length, so the row around a row precedes it.

    The longest row of a name decides where its line is; with ``by_name`` only the names do.
    """
    lines: dict[str, Line] = {}
    parents: dict[str, str] = {}
    recomputed: set[str | None] = set()
    for row in rows:
        line = lines.setdefault(row.name, Line(row.name))
        above = row.parent if row.parent in lines else None
        around = list(_chain(above, parents))
        if row.name not in around or not line.rows:
            line.add(row)
            if not line.rows and above is not None and above != row.name:
                parents[row.name] = above
        if row.phase is Phase.RECOMPUTE:
            for name in around if above not in recomputed else ():
                lines[name].move_to_recompute(row.total_ns)
            recomputed.add(row.name)
        line.rows.append(row)
    if by_name:
        parents = {name: above for name in lines if (above := parent_name(name, lines)) is not None}
    for name, above in parents.items():
        lines[above].children.append(lines[name])
    roots = [line for name, line in lines.items() if name not in parents]
    if not by_name:
        roots = _nest_by_name(roots, lines)
    for line in lines.values():
        line.children.sort(key=by_time)
    return sorted(roots, key=by_time)


def _chain(name: str | None, parents: Mapping[str, str]) -> Iterator[str]:
    """Yield a name and all around it."""
    while name is not None:
        yield name
        name = parents.get(name)


def _nest_by_name(roots: list[Line], lines: Mapping[str, Line]) -> list[Line]:
    """Put a root below the one whose name begins its own, where it ran inside that one and elsewhere, too.

    A row knows one parent. Such a name would stand beside the one that contains a part of it, and the roots would add
    up to more than the step. The one above then has the time of both.
    """
    kept = {line.name: line for line in roots}
    for line in sorted(roots, key=lambda line: -len(line.name)):
        above = kept.get(parent_name(line.name, kept) or "")
        inside_ns = 0 if above is None else _unnamed_ns(above)
        # Share of a line's time from which spans inside it are in rows without a parent.
        if above is not None and inside_ns > 0.01 * above.total_ns and not above.parts[1]:
            outside = max(1 - inside_ns / max(line.total_ns, 1), 0.0)
            above.total_ns += round(outside * line.total_ns)
            above.parts = [mine + round(outside * part) for mine, part in zip(above.parts, line.parts, strict=True)]
            above.children.append(kept.pop(line.name))
    return list(kept.values())


def _unnamed_ns(line: Line) -> int:
    """Return the time of a line in spans whose rows name no parent."""
    inside_ns = sum(row.total_ns - row.self_ns for row in line.rows)
    return inside_ns - sum(child.total_ns for child in line.children)


def walk(lines: Iterable[Line], depth: int = 0, above: str = "") -> Iterator[tuple[Line, int, str]]:
    """Yield lines, parents first, with their depth and their name without their parent's."""
    for line in lines:
        yield line, depth, line.name.removeprefix(f"{above}/") if above else line.name
        yield from walk(line.children, depth + 1, line.name)
