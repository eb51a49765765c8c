"""From a trace to nanoseconds by module and phase, with nothing of autoprof's in between.

Forward: from the begin of a module's range to its end. Recompute: the same for ranges inside the engine's work on a
node. Backward: a node takes the time from the begin of the engine's work on it to the begin of its work on the next
one, less the recompute in it; it belongs to the modules in whose ranges the operator ran that made it. That operator
is the last one to begin with the node's sequence number: creating the node ends the use of the number. A leaf's
``AccumulateGrad`` has no number; the engine runs it at once after the node that gave it the gradient, whose module it
shares.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from autoprof import Phase

from .trace import RANGE, Interval, Trace

Path = tuple[str, ...]
"""The fqns of the modules around something, outermost first."""
Pair = tuple[int, int]
"""A begin and an end in nanoseconds."""
Key = tuple[str, Phase]


@dataclass(slots=True)
class Account:
    """Nanoseconds by fqn and phase, and of all backward passes, from call to return, recompute included."""

    modules: dict[Key, int] = field(default_factory=dict)
    backward_ns: int = 0
    nodes: int = 0
    orphans: int = 0
    """Nodes whose operator the profiler did not see; they are taken for the next older node's."""


class _Nest:
    """Nested intervals of one thread; finds those around an instant."""

    def __init__(self, intervals: Iterable[Interval]) -> None:
        self.all = sorted(intervals, key=lambda one: (one.start_ns, -one.end_ns))
        self._starts = [one.start_ns for one in self.all]
        self._around: list[int] = []
        stack: list[int] = []
        for i, one in enumerate(self.all):
            while stack and self.all[stack[-1]].end_ns <= one.start_ns:
                stack.pop()
            self._around.append(stack[-1] if stack else -1)
            stack.append(i)

    def around(self, start_ns: int) -> list[int]:
        """Return the positions of the intervals that are open at this instant, innermost first."""
        at = bisect_right(self._starts, start_ns) - 1
        found = []
        while at >= 0:
            if self.all[at].end_ns > start_ns:
                found.append(at)
            at = self._around[at]
        return found

    def outside(self, at: int) -> int:
        """Return the position of the interval around the one at this position, or -1."""
        return self._around[at]


class _Thread:
    """The events of one thread."""

    def __init__(self, trace: Trace, thread: int) -> None:
        self.ranges = _Nest(one for one in trace.ranges if one.thread == thread)
        self.evaluations = _Nest(one for one in trace.evaluations if one.thread == thread)
        self.operators = [one for one in trace.operators if one.thread == thread]


class Referee:
    """Make the account of one step."""

    def __init__(self, trace: Trace) -> None:
        numbers = sorted({one.thread for kind in (trace.ranges, trace.evaluations, trace.operators) for one in kind})
        self._threads = {number: _Thread(trace, number) for number in numbers}
        self._made: dict[tuple[int, int], Interval] = {}
        for one in sorted(trace.operators, key=lambda one: one.start_ns):
            if one.sequence >= 0:
                self._made[one.thread, one.sequence] = one
        self._sequences: dict[int, list[int]] = {}
        for thread, sequence in sorted(self._made):
            self._sequences.setdefault(thread, []).append(sequence)
        self._elsewhere = sorted(self._outside_backward(trace))
        self._passes = trace.passes
        self._paths: dict[tuple[int, int], Path] = {}
        self.account = Account()

    def run(self) -> Account:
        """Return the account."""
        spans: dict[Key, list[Pair]] = {}
        recomputed: list[Pair] = []
        for thread in self._threads.values():
            for one in thread.ranges.all:
                inside = thread.evaluations.around(one.start_ns)
                phase = Phase.RECOMPUTE if inside else Phase.FORWARD
                pair = one.start_ns, one.end_ns
                spans.setdefault((one.name.removeprefix(RANGE), phase), []).append(pair)
                if inside:
                    recomputed.append(pair)
        for thread in self._threads.values():
            for start, end, path in self._tiles(thread.evaluations):
                for fqn in set(path):
                    spans.setdefault((fqn, Phase.BACKWARD), []).append((start, end))
        excluded = _union(recomputed)
        for (fqn, phase), pairs in spans.items():
            whole = _union(pairs)
            taken = _length(_without(whole, excluded)) if phase is Phase.BACKWARD else _length(whole)
            self.account.modules[fqn, phase] = taken
        self.account.backward_ns = _length(_union((one.start_ns, one.end_ns) for one in self._passes))
        return self.account

    def _outside_backward(self, trace: Trace) -> Iterator[int]:
        for one in (*trace.ranges, *trace.operators):
            if not self._threads[one.thread].evaluations.around(one.start_ns):
                yield one.start_ns

    def _tiles(self, nest: _Nest) -> Iterator[tuple[int, int, Path]]:
        """Yield the time of each node and the modules it belongs to."""
        families: dict[int, list[int]] = {}
        for at in range(len(nest.all)):
            families.setdefault(nest.outside(at), []).append(at)
        for family in families.values():
            path: Path = ()
            for at, following in zip(family, [*family[1:], None], strict=True):
                node = nest.all[at]
                if node.sequence >= 0:
                    self.account.nodes += 1
                    path = self._path(node.forward_thread, node.sequence)
                end = node.end_ns
                if following is not None and self._goes_on(end, nest.all[following].start_ns):
                    end = nest.all[following].start_ns
                yield node.start_ns, end, path

    def _goes_on(self, end_ns: int, next_ns: int) -> bool:
        """Whether the same backward pass continues: every event in between belongs to a node."""
        at = bisect_right(self._elsewhere, end_ns)
        return at == len(self._elsewhere) or self._elsewhere[at] >= next_ns

    def _path(self, thread: int, sequence: int) -> Path:
        path = self._paths.get((thread, sequence))
        if path is None:
            operator = self._made.get((thread, sequence))
            if operator is None:
                self.account.orphans += 1
                known = self._sequences.get(thread, [])
                older = bisect_right(known, sequence) - 1
                path = self._path(thread, known[older]) if older >= 0 else ()
            else:
                path = self._modules_around(thread, operator.start_ns)
            self._paths[thread, sequence] = path
        return path

    def _modules_around(self, number: int, start_ns: int) -> Path:
        """Return the modules in whose range an operator ran; a recomputed one is also in those of the node's."""
        thread = self._threads[number]
        here = tuple(thread.ranges.all[at].name.removeprefix(RANGE) for at in reversed(thread.ranges.around(start_ns)))
        for at in thread.evaluations.around(start_ns):
            node = thread.evaluations.all[at]
            if node.sequence >= 0:
                return self._path(node.forward_thread, node.sequence) + here
        return here


def _union(pairs: Iterable[Pair]) -> list[Pair]:
    merged: list[Pair] = []
    for start, end in sorted(pairs):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _without(pairs: Sequence[Pair], excluded: Sequence[Pair]) -> Iterator[Pair]:
    """Yield the parts of sorted disjoint ``pairs`` outside sorted disjoint ``excluded``."""
    for start, end in pairs:
        at = max(bisect_right(excluded, (start, start)) - 1, 0)
        while at < len(excluded) and excluded[at][0] < end:
            if excluded[at][1] > start:
                if excluded[at][0] > start:
                    yield start, excluded[at][0]
                start = excluded[at][1]
            at += 1
        if start < end:
            yield start, end


def _length(pairs: Iterable[Pair]) -> int:
    return sum(end - start for start, end in pairs)
