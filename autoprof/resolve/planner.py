"""Marks → ``Plan``.

The codes and threads of a step's marks determine its spans; the clock readings only determine their lengths. Steps of
a run repeat the same codes, so the plan of a sequence is made once, here in plain Python. A step then costs a few
array operations whatever its number of spans.

Forward spans nest as they enter and leave. Backward spans follow the autograd engine: one thread runs the nodes in the
reverse order of their creation. So when the node of a call's output runs, that call's backward begins and every call
not around it has ended; when the node of a call's input runs, every call made after that node has ended. Calls are
identified by ordinals, not names, which separates the calls of shared modules, micro-batches and recomputation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..base.frame import LOGGED_LANE, TRAINING_LANE, Phase
from ..capture.marks import codes as marks
from ..capture.marks.codes import Label
from .plan import BackwardCall, Plan, PlannedSpan, as_column


@dataclass(slots=True)
class StackEntry:
    """An open span on a lane's stack, or the base of a backward pass, which has no span.

    ``span`` is -1 where no span is wanted. A backward pass puts its base (``is_base``) below the backwards it runs; a
    base is ``nested`` inside another pass. ``started`` has, by ordinal, the last span of each call whose backward has
    started above this base. ``is_unattributed`` marks the span above a base while no instrumented module's backward
    runs. ``interrupted`` are the backwards that a recompute interrupted. ``part`` is the label and phase of an entry
    inside a compiled module, whose marks are parts; an entry that ``is_rest`` ends with the next mark. ``parts`` are
    the labels that have been inside this call.
    """

    span: int
    index: int = -1
    ordinal: int = -1
    is_base: bool = False
    nested: bool = False
    is_backward: bool = False
    is_unattributed: bool = False
    interrupted: tuple[StackEntry, ...] = ()
    started: dict[int, int] = field(default_factory=dict)
    part: tuple[Label, Phase] | None = None
    is_rest: bool = False
    parts: set[tuple[Label, Phase]] = field(default_factory=set)


@dataclass(slots=True)
class Lane:
    """The stack of a lane and its last mark.

    ``last_edge`` is the span that was opened or closed last, and whether it was closed: the next memory values belong
    to that edge.
    """

    number: int
    stack: list[StackEntry] = field(default_factory=list)
    last: int = -1
    last_edge: tuple[int, bool] | None = None
    rest_end: int = -1
    """The mark that ended the rest of a compiled module's time last."""
    in_graph: bool = False
    """Whether the last mark began a part of a graph, which goes on."""

    def base(self) -> int | None:
        """Return the position on the stack of the innermost backward pass's base."""
        return next((i for i in range(len(self.stack) - 1, -1, -1) if self.stack[i].is_base), None)

    def innermost(self) -> int:
        """Return the innermost open span, or -1."""
        return next((entry.span for entry in reversed(self.stack) if entry.span >= 0), -1)


class Pauses:
    """The pauses of a step, as positions of marks; -1 where the pause began before the step."""

    def __init__(self) -> None:
        self.found: list[tuple[int, int]] = []
        self._at = -1
        self._lane: Lane | None = None
        self._depth = 0

    def covers(self, lane: Lane) -> bool:
        """Return whether a span that begins on this lane now lies in a pause.

        A hook may mark the end of the call in which it was removed.
        """
        return lane is self._lane

    def begin(self, lane: Lane, at: int) -> None:
        """Begin a pause, unless one is open."""
        if self._at < 0:
            self._at, self._lane, self._depth = at, lane, len(lane.stack)

    def end(self, lane: Lane, at: int) -> int:
        """End a pause and return the depth of the lane's stack at its beginning."""
        self.found.append((self._at, at))
        depth = self._depth if self._lane is lane else len(lane.stack)
        self._at, self._lane = -1, None
        return min(depth, len(lane.stack))

    def finish(self, end: int) -> None:
        """End an open pause with the step."""
        if self._at >= 0:
            self.found.append((self._at, end))


class Planner:
    """Read the marks of one step in order and append its spans.

    ``history`` returns a call of an earlier step (of a graph that outlived its step) by its ordinal, or None.
    """

    def __init__(self, labels: Sequence[Label], mark_ns: float, history: Callable[[int], BackwardCall | None]) -> None:
        self._labels = labels
        self._mark_ns = mark_ns
        self._history = history
        self._spans: list[PlannedSpan] = []
        self._lanes: dict[int, Lane] = {}
        self._calls: dict[int, BackwardCall] = {}
        self._forwards: dict[int, list[int]] = {}
        self._recomputed: set[BackwardCall] = set()
        self._values: list[int] = []
        self._parts: set[tuple[Label, Phase]] = set()
        """The labels inside graphs that run in no call of a module."""
        self._pauses = Pauses()
        self._unmatched = 0

    def plan(self, codes: Sequence[int], lanes: Sequence[int], *, cut: bool = False) -> Plan:
        """Return the plan of these codes (ordinals counted from the step's first) on these lanes.

        In a step that was ``cut`` (its later marks were dropped), open spans end with the last mark of their lane,
        because their real end is unknown.
        """
        handlers = {
            marks.ENTER: self._enter,
            marks.RECOMPUTE: self._enter,
            marks.CHECKPOINT: self._checkpoint,
            marks.RESUME: self._enter,
            marks.LEAVE: self._leave,
            marks.BACKWARD_START: self._start_backward,
            marks.BACKWARD_END: self._end_backward,
            marks.PART: self._begin_part,
            marks.GRAPH_BEGIN: self._begin_pass,
            marks.GRAPH_END: self._end_pass,
            marks.LOGGED: self._log,
            marks.MEMORY: self._read_memory,
            marks.PAUSE: self._pause,
            marks.UNPAUSE: self._unpause,
        }
        turn = -1
        for at, (code, number) in enumerate(zip(codes, lanes, strict=True)):
            if number != TRAINING_LANE and at > turn:
                turn = self._end_of_turn(codes, lanes, at)
            if at <= turn:
                number = TRAINING_LANE
            lane = self._lanes.get(number)
            if lane is None:
                lane = self._lanes[number] = Lane(number)
            kind = code & marks.KIND_MASK
            if kind in marks.VALUE_KINDS:
                self._values.append(at)
            if kind == marks.THREAD:
                continue
            if lane.stack and lane.stack[-1].is_rest and kind not in marks.VALUE_KINDS:
                self._close_to(lane, len(lane.stack) - 1, at)
                lane.rest_end = at
            index = (code >> marks.KIND_BITS) & marks.INDEX_MASK
            handlers[kind](lane, at, kind, index, code >> marks.ORDINAL_SHIFT)
            if kind not in marks.VALUE_KINDS:
                lane.last = at
                self._open_remainder(lane, at)
        end = len(codes)
        memory = sum(code & marks.KIND_MASK == marks.MEMORY for code in codes)  # a memory reading counts its own time
        self._pauses.finish(end)
        for lane in self._lanes.values():
            self._close_to(lane, 0, max(lane.last, 0) if cut else end)
        return Plan.of(
            self._spans,
            values=as_column(self._values),
            pauses=tuple(self._pauses.found),
            calls=self._calls,
            unmatched=self._unmatched,
            overhead_ns=round((end - memory) * self._mark_ns),
            repeatable=not cut and min(codes, default=0) >= 0,
        )

    def _end_of_turn(self, codes: Sequence[int], lanes: Sequence[int], at: int) -> int:
        """Return the end of an update by another thread while the training thread runs nothing; -1 where it is none.

        Such an update is a part of the step: forward and backward may run in an executor, and ``step()`` outside of it.
        """
        code, training = codes[at], self._lanes.get(TRAINING_LANE)
        label = self._labels[(code >> marks.KIND_BITS) & marks.INDEX_MASK]
        is_update = code & marks.KIND_MASK == marks.ENTER and label.phase is Phase.OPTIMIZER
        if not is_update or (training is not None and training.stack):
            return -1
        leave = code & ~marks.KIND_MASK | marks.LEAVE
        for end in range(at + 1, len(codes)):
            if lanes[end] != lanes[at]:
                return -1
            if codes[end] == leave:
                return end
        return -1

    # Opening and closing spans on a lane's stack.

    def _open(self, lane: Lane, at: int, label: Label | None, phase: Phase, calls: int = 1) -> int:
        """Open a span inside the innermost open one; return -1 where its rule excludes this phase.

        The backward of a hidden call has no span either: its own time is unattributed (``BACKWARD_NAME``).
        """
        if (label is not None and phase not in label.phases) or self._pauses.covers(lane):
            return -1
        if label is not None and phase is Phase.BACKWARD and not label.shown:
            return -1
        self._spans.append(PlannedSpan(lane.number, lane.innermost(), at, at, label, phase, calls))
        return len(self._spans) - 1

    def _close_to(self, lane: Lane, depth: int, at: int) -> None:
        """Close everything open above ``depth`` at the mark ``at``."""
        for entry in lane.stack[depth:]:
            if entry.span >= 0:
                self._spans[entry.span].end = at
        del lane.stack[depth:]

    def _open_remainder(self, lane: Lane, at: int) -> None:
        """Open a span for time outside all targets in a backward pass, or continue one."""
        if not lane.stack or not (lane.stack[-1].is_base or self._is_hidden_backward(lane.stack[-1])):
            return
        depth = lane.base()
        if depth is None or lane.stack[depth].nested:
            return
        base = lane.stack[depth]
        span = base.started.get(0, -1)  # no call has the ordinal 0
        if span < 0 or self._spans[span].end != at:
            span = self._open(lane, at, None, Phase.BACKWARD, calls=0 if base.started else 1)
            base.started[0] = span
        lane.stack.append(StackEntry(span, is_unattributed=True))

    def _is_hidden_backward(self, entry: StackEntry) -> bool:
        return entry.is_backward and not self._labels[entry.index].shown

    # Forward spans, spans of the user, phases of the step: they enter and leave.

    def _enter(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        label = self._labels[index]
        if kind == marks.RECOMPUTE and label.phase is Phase.RECOMPUTE:
            self._recompute_checkpoint(lane, at, index, ordinal)
            return
        interrupted: tuple[StackEntry, ...] = ()
        phase = Phase.RECOMPUTE if kind == marks.RECOMPUTE else label.phase
        if kind == marks.RECOMPUTE:
            interrupted = self._interrupt_for_module(lane, at, index)
        elif kind == marks.ENTER and phase in (Phase.FORWARD, Phase.DATA):
            # Neither begins inside a backward pass, so a pass that still seems open was ended by an exception.
            lowest = next((i for i, entry in enumerate(lane.stack) if entry.is_base), None)
            if lowest is not None:
                self._close_to(lane, lowest, max(lane.last, 0))
        if ordinal:
            around = next((entry for entry in reversed(lane.stack) if entry.ordinal > 0), None)
            self._calls[ordinal] = BackwardCall(index, around.ordinal if around else None)
            if kind != marks.RECOMPUTE:
                self._forwards.setdefault(index, []).append(ordinal)
        span = self._open(lane, at, label, phase, calls=0 if kind == marks.RESUME else 1)
        lane.last_edge = span, False
        lane.stack.append(StackEntry(span, index=index, ordinal=ordinal or -1, interrupted=interrupted))

    def _leave(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        for depth in range(len(lane.stack) - 1, -1, -1):
            entry = lane.stack[depth]
            if entry.index == index and not entry.is_backward and (not ordinal or entry.ordinal == ordinal):
                self._close_to(lane, depth, at)
                lane.last_edge = entry.span, True
                for call in entry.interrupted:
                    self._open_backward(lane, at, call.ordinal, call.index, calls=0)
                return
        self._unmatched += 1

    def _interrupt(self, lane: Lane, at: int, contains: Callable[[StackEntry], bool]) -> tuple[StackEntry, ...]:
        """Close the backwards inside the innermost one that ``contains`` a recomputed call, and return them.

        A checkpointed block is recomputed when the first node of its last part needs a tensor. That time lies in the
        last part's backward, but it belongs to the whole block.
        """
        base = lane.base()
        above = [] if base is None else lane.stack[base + 1 :]
        if not all(entry.is_backward or entry.is_unattributed for entry in above):
            return ()
        keep = next((i for i in range(len(above) - 1, -1, -1) if contains(above[i])), -1)
        interrupted = tuple(entry for entry in above[keep + 1 :] if entry.is_backward)
        self._close_to(lane, len(lane.stack) - len(above) + keep + 1, at)
        return interrupted

    def _interrupt_for_module(self, lane: Lane, at: int, index: int) -> tuple[StackEntry, ...]:
        """Interrupt the backwards inside that of the module itself, or of the nearest call that first called it."""
        if index not in self._forwards:
            return ()
        owners = {outer for ordinal in self._forwards[index] for outer, _ in self._call_path(ordinal)[1:]}
        return self._interrupt(lane, at, lambda entry: entry.index == index or entry.ordinal in owners)

    # Checkpointed calls.

    def _checkpoint(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        """Remember the innermost target that contains a checkpointed call, and the calls around it."""
        calls = [entry for entry in reversed(lane.stack) if entry.index >= 0 and not entry.is_base]
        labels = ((entry.index, self._labels[entry.index]) for entry in calls)
        target = next((at for at, label in labels if label.phase is Phase.FORWARD and label.shown), index)
        around = next((entry.ordinal for entry in calls if entry.ordinal > 0), None)
        self._calls[ordinal] = BackwardCall(target, around)

    def _recompute_checkpoint(self, lane: Lane, at: int, index: int, ordinal: int) -> None:
        """Open the span of a recomputation, in the backward of the innermost target that contains the call.

        The spans of targets that are called again lie inside it.
        """
        interrupted: tuple[StackEntry, ...] = ()
        served, calls = index, 1
        call = self._find(ordinal)
        if call is not None:
            around = {outer for outer, _ in self._call_path(ordinal)[1:]}
            interrupted = self._interrupt(lane, at, lambda entry: entry.ordinal in around)
            served = call.index
            calls = 0 if call in self._recomputed else 1
            self._recomputed.add(call)
        span = self._open(lane, at, self._labels[served], Phase.RECOMPUTE, calls=1 if served == index else calls)
        lane.last_edge = span, False
        lane.stack.append(StackEntry(span, index=index, interrupted=interrupted))

    # Backward passes.

    def _begin_pass(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        lane.stack.append(StackEntry(-1, index=ordinal, is_base=True, nested=lane.base() is not None))

    def _end_pass(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        for one in self._lanes.values():  # a thread may wait for a pass that another one runs
            depth = next((i for i, entry in enumerate(one.stack) if entry.is_base and entry.index == ordinal), None)
            if depth is not None:
                self._close_to(one, depth, at)

    def _find(self, ordinal: int) -> BackwardCall | None:
        return self._calls.get(ordinal) or self._history(ordinal)

    def _call_path(self, ordinal: int) -> list[tuple[int, BackwardCall]]:
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
        lane.stack.append(StackEntry(span, index=index, ordinal=ordinal, is_backward=True))

    def _start_backward(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        path = self._call_path(ordinal)
        if not path:
            self._unmatched += 1
            return
        self._close_ended(lane, at, {call for call, _ in path})
        running = {entry.ordinal for entry in lane.stack}  # a call still in its forward has no backward yet
        missing = []
        for outer, call in path:
            if outer in running:
                break
            missing.append((outer, call))
        base = lane.base()
        started = {} if base is None else lane.stack[base].started
        for outer, call in reversed(missing):
            self._open_backward(lane, at, outer, call.index, calls=0 if outer in started else 1)
            started[outer] = lane.stack[-1].span

    def _close_ended(self, lane: Lane, at: int, path: set[int]) -> None:
        """Close, above the base, every backward that is not on the path: newer nodes have all run."""
        base = lane.base()
        for depth in range(0 if base is None else base + 1, len(lane.stack)):
            entry = lane.stack[depth]
            if base is None and not entry.is_backward:
                continue
            if not entry.is_backward or entry.ordinal not in path:
                self._close_to(lane, depth, at)
                return

    def _end_backward(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        base = lane.base()
        for depth in range(0 if base is None else base + 1, len(lane.stack)):
            entry = lane.stack[depth]
            if entry.is_backward and entry.ordinal >= ordinal:
                self._close_to(lane, depth, at)
                return

    # Inside compiled modules.

    def _begin_part(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        """Close what this part of a graph is not inside of, and open what is missing of its path.

        The graph of a compiled module runs inside the module's own forward, recompute or backward, without marks of
        its own; a call that the labels do not know (``PartPath``) keeps its time whole.
        """
        label, depth = self._labels[index], self._running_module(lane)
        module = None if depth is None else lane.stack[depth]
        fqn = None if module is None else self._labels[module.index].fqn
        path = None if label.inside is None else label.inside.get(fqn)
        if path is None:
            return
        is_end = path.labels == (path.rest,)
        around = self._spans[module.span].phase if module is not None and module.span >= 0 else label.phase
        phase = around if label.phase is Phase.FORWARD else label.phase
        seen = self._parts if module is None else module.parts
        outside = (i for i, entry in enumerate(lane.stack) if entry.part is None and not entry.is_unattributed)
        kept = first = max(outside, default=-1) + 1
        if module is not None and not lane.in_graph and lane.rest_end != at:  # since the mark before the graph
            self._close_to(lane, first, max(lane.last, 0))
            self._open_part(lane, max(lane.last, 0), seen, path.rest, around)
            self._close_to(lane, first, at)
        lane.in_graph = not is_end
        for wanted, entry in zip(path.labels, lane.stack[first:], strict=False):
            if entry.part != (wanted, phase):
                break
            kept += 1
        self._close_to(lane, kept, at)
        for wanted in () if module is None and is_end else path.labels[kept - first :]:
            self._open_part(lane, at, seen, wanted, phase)
            lane.stack[-1].is_rest = is_end

    def _running_module(self, lane: Lane) -> int | None:
        """Return the position on the stack of the innermost call of a module whose marks are not parts of a graph."""
        calls = ((at, lane.stack[at].index) for at in range(len(lane.stack) - 1, -1, -1) if not lane.stack[at].is_base)
        return next((at for at, index in calls if index >= 0 and self._labels[index].fqn is not None), None)

    def _open_part(self, lane: Lane, at: int, seen: set[tuple[Label, Phase]], label: Label, phase: Phase) -> None:
        """Open the span of a part; the parts of one call count as one."""
        part = label, phase
        lane.stack.append(StackEntry(self._open(lane, at, label, phase, calls=int(part not in seen)), part=part))
        seen.add(part)

    # Values and pauses.

    def _log(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        span = self._open(Lane(LOGGED_LANE), max(lane.last, 0), self._labels[index], Phase.USER)
        self._spans[span].logged = at

    def _read_memory(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        span, at_end = lane.last_edge or (-1, False)
        if span >= 0:
            self._spans[span].memory.setdefault(at_end, []).append(at)

    def _pause(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        self._pauses.begin(lane, at)

    def _unpause(self, lane: Lane, at: int, kind: int, index: int, ordinal: int) -> None:
        self._close_to(lane, self._pauses.end(lane, at), at)
