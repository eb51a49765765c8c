"""The tree of the hot path: the longest names with their parents, and the time in no child and in no span.

A row with one shown row below it, which takes almost all of its time, is one line with it: ``blocks/* ×12``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..base.frame import MODULE_PHASES, Phase
from ..base.stats.name_lines import Line, by_time, name_lines
from ..base.summary import Summary
from .text import cells as text_cells

SELF: Final = "(self)"
"""The part of a name outside the names below it."""


@dataclass(frozen=True, slots=True)
class TreeRow:
    """A name of the tree: nanoseconds per step, in total and in parts; ``phase`` is that of its longest row.

    A time below ``limit_ns``, the resolution of the clock, is shown as less than that.
    """

    name: str
    depth: int
    total_ns: float
    share: float
    parts: tuple[float, ...] = (0.0, 0.0, 0.0)
    """Its time in forward, recompute and backward."""
    phase: Phase | None = None
    limit_ns: float = 0.0
    calls: float = 0.0
    steps: int = 0
    is_host_bound: bool = False
    is_unopened: bool = False
    """Whether the budget does not allow to record the modules in it."""
    path: str = ""
    """The whole name; empty for a row of operations outside all names."""

    @property
    def is_split(self) -> bool:
        """Whether it has time in a phase with a column of its own."""
        return any(self.parts)


@dataclass(frozen=True, slots=True)
class HotTree:
    """Rows with parents first, longest first; ``hidden`` names are not shown, none longer than ``hidden_share``."""

    rows: tuple[TreeRow, ...]
    hidden: int = 0
    hidden_share: float = 0.0


def hot_tree(summary: Summary, room: int, cells: int) -> HotTree:
    """Return the longest rows in ``room`` lines, none without its parent.

    All rows at the left edge add up to the step. A joined name takes at most ``cells`` with its indentation.
    """
    return _longest_rows(list(tree_rows(summary)), room, cells)


def separate_tree(summary: Summary, room: int, cells: int) -> HotTree:
    """Return the longest rows that are not part of the step's time: of other threads, and logged durations."""
    lines = name_lines(summary)[1] if summary.steps else []
    return _longest_rows(list(_rows(summary, lines, 0, "")), room, cells)


def _longest_rows(every: list[TreeRow], room: int, cells: int) -> HotTree:
    # A parent is never shorter than its child and precedes it, so the longest rows are a tree of their own.
    longest = sorted(range(len(every)), key=lambda at: (-every[at].total_ns, at))

    def lines(count: int) -> list[TreeRow]:
        return _join_chains([every[at] for at in sorted(longest[:count])], cells)

    kept, shown = room, lines(room)
    while kept < len(every) and len(more := lines(kept + 1)) <= room:
        kept, shown = kept + 1, more
    hidden = longest[kept:]
    names = [at for at in hidden if every[at].name != SELF]
    return HotTree(tuple(shown), len(names), max((every[at].share for at in hidden), default=0.0))


def _join_chains(rows: Sequence[TreeRow], cells: int) -> list[TreeRow]:
    """Join each row with the only name below it where that takes almost all of its time. Order: parents, then time."""
    trees: list[list[TreeRow]] = []
    for row in reversed(rows):
        below: list[list[TreeRow]] = []
        while trees and trees[-1][0].depth > row.depth:
            below.append(trees.pop())
        below.sort(key=lambda tree: -tree[0].total_ns)
        named = [tree for tree in below if tree[0].name != SELF]
        only = _joined(row, named[0][0]) if len(named) == 1 else None
        if only is None or text_cells(only.name) + 2 * row.depth > cells:
            trees.append([row, *(one for tree in below for one in tree)])
        else:
            trees.append([only, *(replace(one, depth=one.depth - 1) for one in named[0][1:])])
    trees.reverse()
    return [row for tree in sorted(trees, key=lambda tree: -tree[0].total_ns) for row in tree]


def _joined(outer: TreeRow, inner: TreeRow) -> TreeRow | None:
    """Return one row for both: the inner one under its whole name. None where they differ, or the names do not nest."""
    # The rest of a row that may be lost by joining is less than a large row; at the left edge the rows add up.
    rest = 0.04 if outer.depth else 0.001
    # A row that takes nearly all of its parent's time is joined with it.
    if inner.total_ns < 0.9 * outer.total_ns or outer.share - inner.share > rest or inner.steps != outer.steps:
        return None
    if outer.path and inner.path.startswith(f"{outer.path}/"):
        name = f"{outer.name}/{inner.name}"
        if outer.depth:
            return replace(inner, name=name, depth=outer.depth)
        return replace(outer, name=name, path=inner.path, calls=inner.calls, is_unopened=inner.is_unopened)
    return None


def tree_rows(summary: Summary) -> Iterator[TreeRow]:
    """Yield every row, parents first, siblings in descending order of time; no row without a recorded step."""
    if not summary.steps:
        return
    phases, (roots, _) = summary.phases, name_lines(summary)
    other = Line("other (in no span)", total_ns=phases.get(Phase.OTHER, 0))
    model = Line(
        "model (in no name)", total_ns=summary.total_step_ns - other.total_ns - sum(one.total_ns for one in roots)
    )
    model.parts = _rest([phases.get(phase, 0) for phase in MODULE_PHASES], roots)
    yield from _rows(summary, [*roots, *(line for line in (other, model) if line.total_ns > 0)], 0, "")


def _rows(summary: Summary, lines: Iterable[Line], depth: int, above: str) -> Iterator[TreeRow]:
    """Yield lines with all below them, in descending order of time."""
    steps = summary.steps
    for line in sorted(lines, key=by_time):
        limit_ns = line.limit_ns(summary.clock_limit_ns) if line.rows else summary.clock_limit_ns * steps
        yield TreeRow(
            line.name.removeprefix(f"{above}/"),
            depth,
            line.total_ns / steps,
            line.total_ns / max(summary.total_step_ns, 1),
            tuple(part / steps for part in line.parts),
            phase=line.rows[0].phase if line.rows else None,
            limit_ns=limit_ns / steps,
            calls=line.calls / steps,
            steps=max((row.steps for row in line.rows), default=0),
            is_host_bound=line.is_host_bound,
            is_unopened=any(row.stopped == "budget" for row in line.rows),
            path=line.name if line.rows else "",
        )
        own = Line(SELF, total_ns=line.total_ns - sum(child.total_ns for child in line.children))
        own.parts = _rest(line.parts, line.children)
        # The part of a name outside its children has a row from 1 % of the step on.
        has_own = line.children and own.total_ns >= 0.01 * summary.total_step_ns
        yield from _rows(summary, [*line.children, *([own] if has_own else [])], depth + 1, line.name)


def _rest(parts: Sequence[int], lines: Sequence[Line]) -> list[int]:
    """Return the parts without those of these lines."""
    return [max(ns - sum(line.parts[at] for line in lines), 0) for at, ns in enumerate(parts)]
