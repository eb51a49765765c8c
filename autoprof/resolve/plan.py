"""Marks → ``Plan``: which spans a sequence of marks means, without any time.

The codes and threads of a step's marks determine its spans; the readings only say how long they are. Steps of a
run repeat the same codes, so the plan of a sequence is made once (here, in plain Python) and a step then costs a few
array operations whatever its number of spans.

Forward spans nest as they enter and leave. Backward spans follow the autograd engine: within one thread it runs the
nodes in the reverse order of their creation, so when the node of a call's output runs, that call's backward begins
and whatever is not around it is over; when the node of a call's input runs, every call made after that node is over.
Calls, not names: ordinals tell apart the calls of shared modules, of several micro-batches and of recomputation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .. import recorder as marks
from ..price import Price
from ..recorder import Label
from ..span import LOGGED_LANE, Phase
from .spans import Call, Plan, SpanColumns


@dataclass(slots=True)
class _Open:
    """Something open on a lane's stack: a span (-1: none wanted), or the floor under a backward pass.

    A ``gap`` is the span on a floor while no instrumented module's backward runs. ``resume`` are the backwards that
    a recompute interrupted. ``begun`` are the calls that have had their backward in the pass above this floor.
    """

    span: int
    index: int = -1
    ordinal: int = -1
    floor: bool = False
    nested: bool = False
    backward: bool = False
    gap: bool = False
    resume: tuple[_Open, ...] = ()
    begun: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Lane:
    number: int
    stack: list[_Open] = field(default_factory=list)
    last: int = -1
    marked: tuple[int, bool] | None = None
    passed: dict[int, int] = field(default_factory=dict)
    passed_at: int = -1


class Planner:
    """Read one step's marks in order and write down its spans.

    ``history`` finds a call of an earlier step (a graph that outlived its step) by its ordinal, or returns None.
    """

    def __init__(self, labels: Sequence[Label], price: Price, history: Callable[[int], Call | None]) -> None:
        self._labels = labels
        self._price = price
        self._history = history
        self._spans = SpanColumns()
        self._lanes: dict[int, _Lane] = {}
        self._calls: dict[int, Call] = {}
        self._forwards: dict[int, list[int]] = {}
        self._values: list[int] = []
        self._pauses: list[tuple[int, int]] = []
        self._paused_at = -1
        self._unmatched = 0

    def plan(self, codes: Sequence[int], lanes: Sequence[int]) -> Plan:
        """Return the plan of these codes (ordinals counted from the step's first) on these lanes."""
        handle = {
            marks.ENTER: self._enter,
            marks.RECOMPUTE: self._enter,
            marks.RESUME: self._enter,
            marks.LEAVE: self._leave,
            marks.START: self._start,
            marks.END: self._end,
            marks.PASS: self._pass,
            marks.GRAPH_BEGIN: self._graph_begin,
            marks.GRAPH_END: self._graph_end,
            marks.LOGGED: self._log,
            marks.MEMORY: self._remember,
            marks.PAUSE: self._pause,
            marks.UNPAUSE: self._unpause,
        }
        for at, (code, number) in enumerate(zip(codes, lanes, strict=True)):
            lane = self._lanes.get(number)
            if lane is None:
                lane = self._lanes[number] = _Lane(number)
            kind = code & marks.KIND_MASK
            if kind in marks.VALUES:
                self._values.append(at)
            if kind == marks.THREAD:
                continue
            index = (code >> marks.KIND_BITS) & marks.INDEX_MASK
            handle[kind](lane, at, kind, index, code >> marks.ORDINAL_SHIFT)
            if kind not in marks.VALUES:
                lane.last = at
                self._fill(lane, at)
        end = len(codes)
        if self._paused_at >= 0:
            self._pauses.append((self._paused_at, end))
        for lane in self._lanes.values():
            self._close_to(lane, 0, end)
        followed = sum(code >= marks.ORDINAL for code in codes)
        overhead_ns = round(followed * self._price.followed_ns + (end - followed) * self._price.plain_ns)
        repeatable = min(codes, default=0) >= 0
        return self._spans.plan(self._values, self._pauses, self._calls, self._unmatched, overhead_ns, repeatable)

    # What opens and closes spans. A lane's stack holds what is open, and the floors of backward passes.

    def _open(self, lane: _Lane, at: int, label: Label | None, phase: Phase, calls: int = 1) -> int:
        """Open a span inside the innermost open one; -1 where the rule does not want this phase."""
        if label is not None and phase not in label.phases:
            return -1
        parent = next((entry.span for entry in reversed(lane.stack) if entry.span >= 0), -1)
        return self._spans.open(lane.number, parent, at, label, phase, calls)

    def _close_to(self, lane: _Lane, depth: int, at: int) -> None:
        """Close everything open above ``depth`` at the mark ``at``."""
        for entry in lane.stack[depth:]:
            if entry.span >= 0:
                self._spans.close(entry.span, at)
        del lane.stack[depth:]

    def _fill(self, lane: _Lane, at: int) -> None:
        """Let the time of a backward pass in no module be a span of its own."""
        floor = lane.stack[-1] if lane.stack else None
        if floor is not None and floor.floor and not floor.nested:
            span = self._open(lane, at, None, Phase.BACKWARD, calls=0 if floor.begun else 1)
            floor.begun.add(0)  # no call has this ordinal: from now on the pass has been counted
            lane.stack.append(_Open(span, gap=True))

    def _floor(self, lane: _Lane) -> int | None:
        """Return the position on the stack of the innermost backward pass's floor."""
        return next((i for i in range(len(lane.stack) - 1, -1, -1) if lane.stack[i].floor), None)

    # Forward spans, user spans, phases of the step: they enter and leave.

    def _enter(self, lane: _Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        label = self._labels[index]
        resume: tuple[_Open, ...] = ()
        phase = Phase.RECOMPUTE if kind == marks.RECOMPUTE else label.phase
        if kind == marks.RECOMPUTE:
            resume = self._interrupt(lane, at, index)
        elif kind == marks.ENTER and phase in (Phase.FORWARD, Phase.DATA):
            # Neither begins inside a backward pass; one that seems open was ended by an exception.
            lowest = next((i for i, entry in enumerate(lane.stack) if entry.floor), None)
            if lowest is not None:
                self._close_to(lane, lowest, max(lane.last, 0))
        if ordinal:
            around = next((entry for entry in reversed(lane.stack) if entry.ordinal > 0), None)
            self._calls[ordinal] = Call(index, around.ordinal if around else None)
            if kind != marks.RECOMPUTE:
                self._forwards.setdefault(index, []).append(ordinal)
        span = self._open(lane, at, label, phase, calls=0 if kind == marks.RESUME else 1)
        lane.marked = span, False
        lane.stack.append(_Open(span, index=index, ordinal=ordinal or -1, resume=resume))

    def _leave(self, lane: _Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        for depth in range(len(lane.stack) - 1, -1, -1):
            entry = lane.stack[depth]
            if entry.index == index and not entry.backward and (not ordinal or entry.ordinal == ordinal):
                self._close_to(lane, depth, at)
                lane.marked = entry.span, True
                for call in entry.resume:
                    self._open_backward(lane, at, call.ordinal, call.index, calls=0)
                return
        self._unmatched += 1

    def _interrupt(self, lane: _Lane, at: int, index: int) -> tuple[_Open, ...]:
        """Interrupt the backwards that a recomputed call does not belong to, and return them.

        A checkpointed block is recomputed when the first node of its last part asks for a tensor: in time that lies
        in the last part's backward, but it serves the block. It belongs to the backward of the module itself, or of
        the nearest call in which the module was first called.
        """
        floor = self._floor(lane)
        above = [] if floor is None else lane.stack[floor + 1 :]
        if index not in self._forwards or not all(entry.backward or entry.gap for entry in above):
            return ()
        homes = {outer for ordinal in self._forwards[index] for outer, _ in self._path(ordinal)[1:]}
        keep = next(
            (i for i in range(len(above) - 1, -1, -1) if above[i].index == index or above[i].ordinal in homes), -1
        )
        interrupted = tuple(entry for entry in above[keep + 1 :] if entry.backward)
        self._close_to(lane, len(lane.stack) - len(above) + keep + 1, at)
        return interrupted

    # Backward passes.

    def _graph_begin(self, lane: _Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        lane.stack.append(_Open(-1, index=ordinal, floor=True, nested=self._floor(lane) is not None))

    def _graph_end(self, lane: _Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        for depth, entry in enumerate(lane.stack):
            if entry.floor and entry.index == ordinal:
                self._close_to(lane, depth, at)
                return

    def _find(self, ordinal: int) -> Call | None:
        return self._calls.get(ordinal) or self._history(ordinal)

    def _path(self, ordinal: int) -> list[tuple[int, Call]]:
        """Return the call and those around it, innermost first."""
        path = []
        at: int | None = ordinal
        while at is not None:
            call = self._find(at)
            if call is None:
                break
            path.append((at, call))
            at = call.parent
        return path

    def _begun(self, lane: _Lane) -> set[int]:
        """Return the calls that have had their backward in the innermost backward pass."""
        floor = self._floor(lane)
        return set() if floor is None else lane.stack[floor].begun

    def _open_backward(self, lane: _Lane, at: int, ordinal: int, index: int, calls: int) -> None:
        span = self._open(lane, at, self._labels[index], Phase.BACKWARD, calls)
        lane.stack.append(_Open(span, index=index, ordinal=ordinal, backward=True))

    def _start(self, lane: _Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        path = self._path(ordinal)
        if not path:
            self._unmatched += 1
            return
        self._step_out(lane, at, {call for call, _ in path})
        running = {entry.ordinal for entry in lane.stack}  # a call still in its forward has no backward yet
        missing = []
        for outer, call in path:
            if outer in running:
                break
            missing.append((outer, call))
        begun = self._begun(lane)
        for outer, call in reversed(missing):
            self._open_backward(lane, at, outer, call.index, calls=0 if outer in begun else 1)
            begun.add(outer)

    def _step_out(self, lane: _Lane, at: int, path: set[int]) -> None:
        """Close, above the floor, everything that is not on the path: newer nodes have all run."""
        floor = self._floor(lane)
        for depth in range(0 if floor is None else floor + 1, len(lane.stack)):
            entry = lane.stack[depth]
            if floor is None and not entry.backward:
                continue
            if not entry.backward or entry.ordinal not in path:
                self._close_to(lane, depth, at)
                return

    def _end(self, lane: _Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        floor = self._floor(lane)
        for depth in range(0 if floor is None else floor + 1, len(lane.stack)):
            entry = lane.stack[depth]
            if entry.backward and entry.ordinal >= ordinal:
                self._close_to(lane, depth, at)
                return

    def _pass(self, lane: _Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        """Write a backward of no length, inside that of the call around it where there is one; touch nothing else."""
        call, begun = self._find(ordinal), self._begun(lane)
        if call is None:
            self._unmatched += 1
            return
        if ordinal in begun:  # the call has other outputs, whose backward it was
            return
        begun.add(ordinal)
        if lane.passed_at != lane.last:
            lane.passed.clear()
        span = self._open(lane, at, self._labels[call.index], Phase.BACKWARD)
        around = next((lane.passed[outer] for outer, _ in self._path(ordinal)[1:] if outer in lane.passed), None)
        if around is not None and span >= 0:
            self._spans.parents[span] = around
        lane.passed[ordinal] = span
        lane.passed_at = at

    # Values and pauses.

    def _log(self, lane: _Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        span = self._open(_Lane(LOGGED_LANE), max(lane.last, 0), self._labels[index], Phase.USER)
        self._spans.logged[span] = at

    def _remember(self, lane: _Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        if lane.marked is not None:
            self._spans.memory[lane.marked] = at

    def _pause(self, lane: _Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        if self._paused_at < 0:
            self._paused_at = at

    def _unpause(self, lane: _Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        # Without a mark of its beginning, the pause began before the step did.
        self._pauses.append((self._paused_at, at))
        self._paused_at = -1
