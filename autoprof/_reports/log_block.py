"""The sections of many steps of the readable log at once: the same text as ``render_section``, in a third of its time.

The lines of all steps are rows of one matrix, in words of four bytes. A number is two or three words from tables of a
thousand entries each. Words that a line does not need are zero, and zero bytes are removed at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .._stats.layout_cache import cached_by_layout
from .._units import NS_PER_MS
from ..frame import Layout, Nanoseconds, StepFrame
from .log import (
    HOST_BOUND,
    SUM_OF_PARTS,
    StepTree,
    frame_section,
    name_cells,
    render_facts,
    render_section,
    shown_host_bound_ns,
)
from .name_averages import NameAverages
from .name_tree import NameTree, name_tree

LEAST_STEPS: Final = 4
"""Fewer steps are rendered one by one: the fixed cost of the array operations is that of about three steps."""
LINES: Final = 1024
"""Lines that are rendered together, of at least ``LEAST_STEPS``: that takes about a millisecond."""
MAX_STEPS: Final = 48
"""The most steps that are rendered together: more hardly take less time each."""
_MOST_NS: Final = 999_999_000_000
"""Longer times have more digits than the columns."""
_MOST_SHARE: Final = 999.0
"""The largest share in per cent; durations of other threads may exceed the step."""
_NEAR_TIE: Final = 1e-4
"""Numbers so close to the middle between two texts are formatted one by one, to be rounded as everywhere else."""

Words = npt.NDArray[np.uint32]
Values = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


def _words(texts: Sequence[bytes], width: int = 1) -> Words:
    return np.frombuffer(b"".join(text.ljust(4 * width, b"\0") for text in texts), dtype=np.uint32)


_THOUSAND: Final = range(1000)
_DIGITS: Final = _words([b"%03d" % n for n in _THOUSAND])
"""Three decimals."""
_COLUMN_HIGH: Final = _words([b"%3d" % n if n else b"   " for n in _THOUSAND])
_COLUMN: Final = _words([b"%3d." % n for n in _THOUSAND] + [b"%03d." % n for n in _THOUSAND])
"""The thousands below a decimal point in a column; the second half with something before them."""
_TEXT_HIGH: Final = _words([b" %d" % n if n else b" " for n in _THOUSAND])
_TEXT: Final = _words([b"%d." % n for n in _THOUSAND] + [b"%03d." % n for n in _THOUSAND])
_SHARE_END: Final = _words([b"%d%%)" % n for n in range(10)])
_COLON: Final = _words([b": "])[0]
_MS_SHARE: Final = _words([b"ms ("])[0]
_AVERAGE: Final = _words([b" [avg: "], 2)
_MS_END: Final = _words([b"ms]"])[0]
_FORWARD, _RECOMPUTE, _BACKWARD = (_words([text])[0] for text in (b" fwd", b" rec", b" bwd"))
_SUM_OF_PARTS: Final = _words([SUM_OF_PARTS.encode()], 4)
_HOST_BOUND: Final = _words([HOST_BOUND.encode()], 3)
_NEWLINE: Final = _words([b"\n"])[0]


class LogBlock:
    """Collect steps of one layout, and render their sections together."""

    def __init__(self, averages: NameAverages) -> None:
        self._averages = averages
        self._frames: list[StepFrame] = []
        self._clock_limit_ns = 0
        self._most = 0

    def takes(self, frame: StepFrame, clock_limit_ns: int) -> bool:
        """Return whether the step may be added: one block has one layout, and no warm-up steps beside others."""
        if not self._frames:
            return True
        first = self._frames[0]
        return (
            first.layout is frame.layout
            and first.warmup == frame.warmup
            and self._clock_limit_ns == clock_limit_ns
            and (first.host_bound_ns is None) == (frame.host_bound_ns is None)
            and (first.device_duration_ns is None) == (frame.device_duration_ns is None)
            and [*first.model_ns] == [*frame.model_ns]
        )

    def add(self, frame: StepFrame, clock_limit_ns: int) -> bool:
        """Add a step; return whether the block is full."""
        if not self._frames:
            lines = len(name_tree(frame.layout).nodes)
            self._most = min(max(LINES // max(lines, 1), LEAST_STEPS), MAX_STEPS)
            self._clock_limit_ns = clock_limit_ns
        self._frames.append(frame)
        return len(self._frames) >= self._most

    def render(self) -> str:
        """Return the sections of the steps, and begin anew."""
        frames, self._frames = self._frames, []
        if not frames:
            return ""
        layout, limit_ns = frames[0].layout, self._clock_limit_ns
        tree, facts = name_tree(layout), render_facts(frames, limit_ns)
        values = tree.values_ns(np.array([frame.total_ns for frame in frames]))
        if frames[0].warmup:
            averages = [self._averages.of(layout, tree)] * len(frames)
        else:
            means = self._averages.add_steps(layout, tree, values[:, :, 0])
            if len(frames) >= LEAST_STEPS and not np.isnan(means).any():
                text = _render(frames, limit_ns, facts, tree, values, means)
                if text is not None:
                    return text
            averages = [[None if mean != mean else mean for mean in row] for row in means.tolist()]  # NaN: no average
        return "".join(map(render_section, frames, repeat(limit_ns), facts, values, averages))


def _render(
    frames: Sequence[StepFrame],
    limit_ns: int,
    facts: Sequence[str],
    tree: NameTree,
    values: Nanoseconds,
    means: Values,
) -> str | None:
    """Return the sections; None where a number does not fit into its columns."""
    step_ns = np.array([frame.step_ns for frame in frames])
    if values.min(initial=0) < 0 or values.max(initial=0) > _MOST_NS or not (step_ns > 0).all():
        return None
    bounds = [shown_host_bound_ns(frame) for frame in frames]
    host_bound = None if bounds[0] is None else tree.values_ns(np.array(bounds))[:, :, 0]
    main, separate = forests_of(frames[0].layout)
    numbers = _Numbers(tree, values, means, step_ns, host_bound, limit_ns)
    above = main.render(numbers)
    if above is None:
        return None
    below = separate.render(numbers)
    if below is None:
        return None
    covered = values[:, main.roots, 0].sum(axis=1).tolist()
    return "".join(map(frame_section, frames, repeat(limit_ns), covered, above, below, facts))


class _Numbers:
    """The numbers of some steps, with a row a step and a column a node; ``values`` as ``NameTree.values_ns``."""

    def __init__(
        self,
        tree: NameTree,
        values: Nanoseconds,
        means: Values,
        step_ns: Places,
        host_bound: Nanoseconds | None,
        limit_ns: int,
    ) -> None:
        self._tree = tree
        self._sections: dict[int, StepTree] = {}
        self.values, self.means, self.step_ns, self.limit_ns = values, means, step_ns, limit_ns
        self.percent = 100 / step_ns
        self.host_bound = host_bound

    def section(self, step: int) -> StepTree:
        """Return the section of a step that formats single lines."""
        section = self._sections.get(step)
        if section is None:
            means, values = self.means[step].tolist(), self.values[step]
            section = StepTree(self._tree, values, means, int(self.step_ns[step]), self.limit_ns)
            if self.host_bound is not None:
                section.host_bound_ns = self.host_bound[step].tolist()
            self._sections[step] = section
        return section


class Forest:
    """Some nodes of a tree of names and all below them, and the lines ``self`` of those with children."""

    def __init__(self, tree: NameTree, roots: Sequence[int]) -> None:
        self.roots = np.asarray(roots, dtype=np.int64)
        nodes, above, depths = list(roots), [-1] * len(roots), [0] * len(roots)
        at = 0
        while at < len(nodes):  # breadth first: siblings are neighbours, and a parent comes before its children
            below = tree.children[nodes[at] + 1]
            nodes += below
            above += [at] * len(below)
            depths += [depths[at] + 1] * len(below)
            at += 1
        sizes = [1] * len(nodes)
        owners = sorted({parent for parent in above if parent >= 0})
        resting = [at for at in owners if not tree.nodes[nodes[at]].is_header]
        for at in resting:
            sizes[at] += 1
        for at in range(len(nodes) - 1, -1, -1):
            if above[at] >= 0:
                sizes[above[at]] += sizes[at]
        self.nodes, self._sizes = np.asarray(nodes, dtype=np.int64), np.asarray(sizes, dtype=np.int64)
        self._above, group = np.asarray(above, dtype=np.int64), np.asarray(above, dtype=np.int64) + 1
        self._group_key = group << 42
        self._first = np.searchsorted(group, group)
        depth_of = np.asarray(depths, dtype=np.int64)
        self._levels = [np.flatnonzero(depth_of == depth) for depth in range(1, max(depths, default=0) + 1)]
        self._resting = np.asarray(resting, dtype=np.int64)
        self._children = [np.flatnonzero(self._above == at) for at in resting]
        self._rest_depths = [tree.nodes[nodes[at]].depth + 1 for at in resting]
        self._calls = np.asarray([tree.nodes[node].calls for node in nodes], dtype=np.int64)
        self._headers = np.asarray([tree.nodes[node].is_header for node in nodes], dtype=bool)
        heads = [name_cells(tree.nodes[node].label, tree.nodes[node].depth) for node in nodes]
        heads += [name_cells("self", depth) for depth in self._rest_depths]
        data = [head.encode("utf-8", "replace") for head in heads]
        self._is_plain = not any(b"\0" in head for head in data)
        self._head_words = max((len(head) for head in data), default=0) // 4 + 1
        self._heads = _words(data, self._head_words).reshape(len(heads), self._head_words)

    def render(self, numbers: _Numbers) -> list[str] | None:
        """Return the lines of each step; None where a number does not fit into its columns."""
        count = len(numbers.step_ns)
        if not len(self.nodes):
            return [""] * count
        values, means = numbers.values[:, self.nodes], numbers.means[:, self.nodes]
        total = values[:, :, 0]
        rest = self._rest(total)
        percent = numbers.percent[:, None]
        shares = np.concatenate([total, rest], axis=1) * percent
        if not self._is_plain or rest.min(initial=0) < 0 or shares.max() > _MOST_SHARE or means.max() > _MOST_NS:
            return None
        bound = None if numbers.host_bound is None else numbers.host_bound[:, self.nodes]
        lines = self._lines(values, means, rest, shares, bound)
        if numbers.limit_ns and not self._replace_short(lines, values, means, rest, numbers):
            return None
        order = self._order(total)
        width = 4 * lines.shape[2]
        rows = lines.reshape(-1, lines.shape[2]).view(f"V{width}").ravel()
        rows = rows[(order + np.arange(count)[:, None] * lines.shape[1]).ravel()]
        data, size = rows.tobytes(), width * lines.shape[1]
        return [data[at * size : (at + 1) * size].translate(None, b"\0").decode() for at in range(count)]

    def _rest(self, total: Nanoseconds) -> Nanoseconds:
        rest = total[:, self._resting]
        if len(self._resting):
            below = np.concatenate(self._children)
            starts = np.cumsum([0, *(len(children) for children in self._children[:-1])])
            rest -= np.add.reduceat(total[:, below], starts, axis=1)
        return rest

    def _lines(
        self, values: Nanoseconds, means: Values, rest: Nanoseconds, shares: Values, bound: Nanoseconds | None
    ) -> Words:
        """Return the words of all lines: those of the nodes, then those of ``self``."""
        count, nodes = values.shape[:2]
        total, forward, recompute, backward = (values[:, :, at] for at in range(4))
        split = (backward > 0) & ~self._headers
        has_recompute, head = bool(recompute.any()), self._head_words
        width = head + 22 + 4 * has_recompute + 4 * bool(self._headers.any()) + 3 * (bound is not None)
        lines = np.zeros((count, nodes + rest.shape[1], width), dtype=np.uint32)
        lines[:, :, :head] = self._heads
        parts = [forward, recompute, backward] if has_recompute else [forward, backward]
        numbers = _Milliseconds(np.concatenate([total, rest, means, *parts], axis=1))
        at = head
        lines[:, :, at] = _COLON
        numbers.column(lines[:, :, at + 1 :])
        lines[:, :, at + 4] = _MS_SHARE
        tenths = _rounded(shares, 1)
        whole = tenths // 10
        lines[:, :, at + 5] = _COLUMN[whole]
        lines[:, :, at + 6] = _SHARE_END[tenths - 10 * whole]
        inner = lines[:, :nodes]
        inner[:, :, at + 7 : at + 9] = _AVERAGE
        numbers.column(inner[:, :, at + 9 :])
        inner[:, :, at + 12] = _MS_END
        inner[:, :, at + 13] = _FORWARD * ((split | (forward > 0)) & ~self._headers)
        at += 14
        numbers.text(inner[:, :, at:], split)
        at += 3
        labels = [(_RECOMPUTE, split & (recompute > 0))] if has_recompute else []
        for label, shown in (*labels, (_BACKWARD, split)):
            inner[:, :, at] = label * shown
            numbers.text(inner[:, :, at + 1 :], shown)
            at += 4
        return self._ends(lines, at, total, rest, bound)

    def _ends(self, lines: Words, at: int, total: Nanoseconds, rest: Nanoseconds, bound: Nanoseconds | None) -> Words:
        """Write the ends of the lines; a line ``self`` of no time is all zeros."""
        nodes = total.shape[1]
        if self._headers.any():
            lines[:, :nodes][:, self._headers, at : at + 4] = _SUM_OF_PARTS
        if bound is not None:
            waits = (2 * bound > total) & ~self._headers
            lines[:, :nodes, lines.shape[2] - 4 : -1] = _HOST_BOUND * waits[:, :, None]
        lines[:, :, -1] = _NEWLINE
        step, absent = np.nonzero(rest == 0)
        lines[step, nodes + absent] = 0
        return lines

    def _replace_short(
        self, lines: Words, values: Nanoseconds, means: Values, rest: Nanoseconds, numbers: _Numbers
    ) -> bool:
        """Replace lines with a number that the clock cannot resolve; return False where a text is too long."""
        total, forward, recompute, backward = (values[:, :, at] for at in range(4))
        limits = self._calls * numbers.limit_ns
        parts = (backward < limits) | ((forward > 0) & (forward < limits)) | ((recompute > 0) & (recompute < limits))
        short = (total < limits) | (means < limits) | ((backward > 0) & parts)
        below = np.concatenate([short, (rest > 0) & (rest < numbers.limit_ns)], axis=1)
        if not below.any():
            return True
        places, nodes, texts, room = np.nonzero(below), len(self.nodes), [], 4 * lines.shape[2]
        for step, at in zip(*(index.tolist() for index in places), strict=True):
            section = numbers.section(step)
            if at < nodes:
                text = section.line(int(self.nodes[at]))
            else:
                text = section.plain("self", self._rest_depths[at - nodes], int(rest[step, at - nodes]))
            texts.append(f"{text}\n".encode("utf-8", "replace"))
        if max(map(len, texts)) > room:
            return False
        lines[places] = _words(texts, lines.shape[2]).reshape(len(texts), lines.shape[2])
        return True

    def _order(self, total: Nanoseconds) -> Places:
        """Return for each step the lines in their order: siblings by time, each followed by the lines below it."""
        count, nodes = total.shape
        by_time = np.argsort(self._group_key - total, axis=1, kind="stable")
        sizes = self._sizes[by_time]
        offsets = np.cumsum(sizes, axis=1) - sizes
        offsets -= offsets[:, self._first]
        places = np.empty((count, nodes + len(self._resting)), dtype=np.int64)
        np.put_along_axis(places, by_time, offsets, axis=1)
        for level in self._levels:
            places[:, level] += places[:, self._above[level]] + 1
        places[:, nodes:] = places[:, self._resting] + self._sizes[self._resting] - 1
        order = np.empty_like(places)
        np.put_along_axis(order, places, np.broadcast_to(np.arange(places.shape[1]), places.shape), axis=1)
        return order


@cached_by_layout
def forests_of(layout: Layout) -> tuple[Forest, Forest]:
    """Return the nodes of the step, and those that are not part of its time."""
    tree = name_tree(layout)
    return Forest(tree, tree.children[0]), Forest(tree, tree.separate)


def _rounded(numbers: Values, digits: int) -> Places:
    """Return the digits that ``%.{digits}f`` shows, as an integer."""
    scaled = numbers * 10**digits
    nearest = np.rint(scaled)
    doubtful = np.flatnonzero(np.abs(np.abs(scaled - nearest) - 0.5) < _NEAR_TIE)
    places: Places = nearest.astype(np.int64)
    for at in doubtful.tolist():
        places.flat[at] = int(f"{numbers.flat[at]:.{digits}f}".replace(".", ""))
    return places


class _Milliseconds:
    """Numbers of each step side by side, cut into three digits each, and written from left to right."""

    def __init__(self, ns: Values) -> None:
        thousandths = _rounded(ns / NS_PER_MS, 3)
        whole = thousandths // 1000
        self._high = whole // 1000
        self._middle = whole - 1000 * self._high + 1000 * (self._high > 0)
        self._low = _DIGITS[thousandths - 1000 * whole]
        self._at = 0

    def column(self, words: Words) -> None:
        """Write the next numbers, one for each line, as ``%10.3f`` into three words."""
        high, middle, low = self._next(words.shape[1])
        words[:, :, 0], words[:, :, 1], words[:, :, 2] = _COLUMN_HIGH[high], _COLUMN[middle], low

    def text(self, words: Words, shown: Any) -> None:
        """Write them as `` %.3f`` into three words, where they are shown."""
        high, middle, low = self._next(words.shape[1])
        words[:, :, 0], words[:, :, 1], words[:, :, 2] = _TEXT_HIGH[high] * shown, _TEXT[middle] * shown, low * shown

    def _next(self, count: int) -> tuple[Places, Places, Words]:
        begin, self._at = self._at, self._at + count
        part = slice(begin, self._at)
        return self._high[:, part], self._middle[:, part], self._low[:, part]
