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
from dataclasses import replace

from .._capture import marks
from .._capture.mark_cost import MarkCost
from .._capture.marks import Label
from ..frame import LOGGED_LANE, TRAINING_LANE, Phase
from .grad_accumulation import Rounds
from .lanes import Lane, Open
from .pauses import Pauses
from .spans import Call, Plan, SpanColumns


class Planner:
    """Read one step's marks in order and write down its spans.

    ``history`` finds a call of an earlier step (a graph that outlived its step) by its ordinal, or returns None.
    """

    def __init__(self, labels: Sequence[Label], price: MarkCost, history: Callable[[int], Call | None]) -> None:
        self._labels = labels
        self._price = price
        self._history = history
        self._spans = SpanColumns()
        self._lanes: dict[int, Lane] = {}
        self._calls: dict[int, Call] = {}
        self._forwards: dict[int, list[int]] = {}
        self._values: list[int] = []
        self._pauses = Pauses()
        self._unmatched = 0
        self._rounds = Rounds(labels)

    def plan(self, codes: Sequence[int], lanes: Sequence[int], *, cut: bool = False) -> Plan:
        """Return the plan of these codes (ordinals counted from the step's first) on these lanes.

        Of a step that was ``cut``, whose later marks were dropped, what is open at the end ends with its lane's last
        mark: how long it went on is not known.
        """
        handle = {
            marks.ENTER: self._enter,
            marks.RECOMPUTE: self._enter,
            marks.RESUME: self._enter,
            marks.LEAVE: self._leave,
            marks.BACKWARD_START: self._start,
            marks.BACKWARD_END: self._end,
            marks.PASS_THROUGH: self._pass,
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
                lane = self._lanes[number] = Lane(number)
            kind = code & marks.KIND_MASK
            if kind in marks.VALUE_KINDS:
                self._values.append(at)
            if kind == marks.THREAD:
                continue
            index = (code >> marks.KIND_BITS) & marks.INDEX_MASK
            handle[kind](lane, at, kind, index, code >> marks.ORDINAL_SHIFT)
            if number == TRAINING_LANE:
                self._rounds.see(kind, index)
            if kind not in marks.VALUE_KINDS:
                lane.last = at
                self._fill(lane, at)
        end = len(codes)
        self._pauses.finish(end)
        for lane in self._lanes.values():
            self._close_to(lane, 0, max(lane.last, 0) if cut else end)
        followed = sum(code >= marks.ORDINAL_STRIDE for code in codes)
        read = sum(code & marks.KIND_MASK == marks.MEMORY for code in codes)  # which the readings themselves charge
        overhead_ns = round(followed * self._price.backward_ns + (end - followed - read) * self._price.forward_ns)
        repeatable = not cut and min(codes, default=0) >= 0
        plan = self._spans.plan(self._values, self._pauses.found, self._calls, self._unmatched, overhead_ns, repeatable)
        return replace(plan, micro_steps=self._rounds.micro_steps)

    # What opens and closes spans. A lane's stack holds what is open, and the floors of backward passes.

    def _open(self, lane: Lane, at: int, label: Label | None, phase: Phase, calls: int = 1) -> int:
        """Open a span inside the innermost open one; -1 where the rule does not want this phase."""
        if (label is not None and phase not in label.phases) or self._pauses.hides(lane):
            return -1
        return self._spans.open(lane.number, lane.innermost(), at, label, phase, calls)

    def _close_to(self, lane: Lane, depth: int, at: int) -> None:
        """Close everything open above ``depth`` at the mark ``at``."""
        for entry in lane.stack[depth:]:
            if entry.span >= 0:
                self._spans.close(entry.span, at)
        del lane.stack[depth:]

    def _fill(self, lane: Lane, at: int) -> None:
        """Let the time of a backward pass in no module be a span of its own."""
        floor = lane.stack[-1] if lane.stack else None
        if floor is not None and floor.floor and not floor.nested:
            span = self._open(lane, at, None, Phase.BACKWARD, calls=0 if floor.begun else 1)
            floor.begun[0] = span  # no call has this ordinal: from now on the pass has been counted
            lane.stack.append(Open(span, gap=True))

    # Forward spans, user spans, phases of the step: they enter and leave.

    def _enter(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        label = self._labels[index]
        resume: tuple[Open, ...] = ()
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
        lane.stack.append(Open(span, index=index, ordinal=ordinal or -1, resume=resume))

    def _leave(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        for depth in range(len(lane.stack) - 1, -1, -1):
            entry = lane.stack[depth]
            if entry.index == index and not entry.backward and (not ordinal or entry.ordinal == ordinal):
                self._close_to(lane, depth, at)
                lane.marked = entry.span, True
                for call in entry.resume:
                    self._open_backward(lane, at, call.ordinal, call.index, calls=0)
                return
        self._unmatched += 1

    def _interrupt(self, lane: Lane, at: int, index: int) -> tuple[Open, ...]:
        """Interrupt the backwards that a recomputed call does not belong to, and return them.

        A checkpointed block is recomputed when the first node of its last part asks for a tensor: in time that lies
        in the last part's backward, but it serves the block. It belongs to the backward of the module itself, or of
        the nearest call in which the module was first called.
        """
        floor = lane.floor()
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

    def _graph_begin(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        lane.stack.append(Open(-1, index=ordinal, floor=True, nested=lane.floor() is not None))

    def _graph_end(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        for one in self._lanes.values():  # each device has a thread that runs its part of the pass
            depth = next((i for i, entry in enumerate(one.stack) if entry.floor and entry.index == ordinal), None)
            if depth is not None:
                self._close_to(one, depth, at)

    def _join(self, lane: Lane) -> None:
        """Let a thread that runs a part of a backward pass that another one began have a floor of that pass."""
        if lane.number == TRAINING_LANE or lane.floor() is not None:
            return
        for other in self._lanes.values():
            floor = other.floor()
            if floor is not None:
                begun = other.stack[floor]
                lane.stack.append(Open(-1, index=begun.index, floor=True, nested=True, begun=begun.begun))
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

    def _open_backward(self, lane: Lane, at: int, ordinal: int, index: int, calls: int) -> None:
        span = self._open(lane, at, self._labels[index], Phase.BACKWARD, calls)
        lane.stack.append(Open(span, index=index, ordinal=ordinal, backward=True))

    def _start(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        path = self._path(ordinal)
        if not path:
            self._unmatched += 1
            return
        self._join(lane)
        self._step_out(lane, at, {call for call, _ in path})
        running = {entry.ordinal for entry in lane.stack}  # a call still in its forward has no backward yet
        missing = []
        for outer, call in path:
            if outer in running:
                break
            missing.append((outer, call))
        begun = lane.begun()
        for outer, call in reversed(missing):
            self._open_backward(lane, at, outer, call.index, calls=0 if outer in begun else 1)
            begun[outer] = lane.stack[-1].span

    def _step_out(self, lane: Lane, at: int, path: set[int]) -> None:
        """Close, above the floor, everything that is not on the path: newer nodes have all run."""
        floor = lane.floor()
        for depth in range(0 if floor is None else floor + 1, len(lane.stack)):
            entry = lane.stack[depth]
            if floor is None and not entry.backward:
                continue
            if not entry.backward or entry.ordinal not in path:
                self._close_to(lane, depth, at)
                return

    def _end(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        floor = lane.floor()
        for depth in range(0 if floor is None else floor + 1, len(lane.stack)):
            entry = lane.stack[depth]
            if entry.backward and entry.ordinal >= ordinal:
                self._close_to(lane, depth, at)
                return
        for other in self._lanes.values():
            # Another device's thread may have run the call. What else that thread has open this says nothing of.
            ran = [i for i, entry in enumerate(other.stack) if entry.backward and entry.ordinal == ordinal]
            if ran:
                self._close_to(other, ran[0], at)

    def _pass(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        """Write a backward of no length, inside that of the call around it; touch nothing else."""
        self._join(lane)
        call, begun = self._find(ordinal), lane.begun()
        if call is None:
            self._unmatched += 1
        elif ordinal not in begun:  # or the call has other outputs, whose backward it was
            label, begun[ordinal] = self._labels[call.index], -1
            if Phase.BACKWARD in label.phases:
                parent, place = self._beside(lane, at, ordinal, begun)
                begun[ordinal] = self._spans.open(lane.number, parent, place, label, Phase.BACKWARD, 1)

    def _beside(self, lane: Lane, at: int, ordinal: int, begun: dict[int, int]) -> tuple[int, int]:
        """Return the span of the nearest call around this one, and a mark where nothing else is open in it."""
        depth = lane.floor()
        for outer, _ in self._path(ordinal)[1:]:
            found = next((i for i, entry in enumerate(lane.stack) if entry.ordinal == outer), None)
            if found is not None and lane.stack[found].span >= 0:
                depth = found
                break
            over = begun.get(outer, -1)
            if found is None and over >= 0 and self._spans.lanes[over] == lane.number:
                return over, self._spans.ends[over]
        inside = (entry for entry in lane.stack[0 if depth is None else depth + 1 :] if entry.span >= 0)
        first = next(inside, None)
        if first is None or first.gap:
            return lane.innermost(), at
        return self._spans.parents[first.span], self._spans.starts[first.span]

    # Values and pauses.

    def _log(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        span = self._open(Lane(LOGGED_LANE), max(lane.last, 0), self._labels[index], Phase.USER)
        self._spans.logged[span] = at

    def _remember(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        if lane.marked is not None:
            self._spans.memory.setdefault(lane.marked, []).append(at)

    def _pause(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        self._pauses.begin(lane, at)

    def _unpause(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        self._close_to(lane, self._pauses.end(lane, at), at)
