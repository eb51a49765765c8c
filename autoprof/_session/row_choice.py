"""The rows that are recorded, and those that the budget does not afford: they hold least time for their cost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from .._core.names import shorten, visible
from .._resolve.observer import Observer
from .._stats import step_rows
from .._targets import Target
from ..frame import TRAINING_LANE, FrameRun, Layout, Nanoseconds, Phase, StepFrame
from .sampling import TargetSet


class Measured(NamedTuple):
    """Some steps by the name of a row: total and self time of all phases, and calls in a step."""

    steps: int
    step_ns: int
    shortest_ns: int
    total_ns: Mapping[str, int]
    self_ns: Mapping[str, int]
    calls: Mapping[str, float]

    def share(self, name: str) -> float:
        """Return the part of the steps' time in which the row ran."""
        return self.total_ns.get(name, 0) / max(self.step_ns, 1)

    def own_share(self, name: str) -> float:
        """Return the part of the steps' time in which the row ran and no recorded row inside it."""
        return self.self_ns.get(name, 0) / max(self.step_ns, 1)


class Meter:
    """Add up the steps of one set of targets."""

    def __init__(self) -> None:
        self.steps = self._step_ns = self._shortest_ns = 0
        self._sums: dict[Layout, tuple[int, Nanoseconds]] = {}

    def add(self, frame: StepFrame) -> None:
        """Add one step."""
        self._shortest_ns = min(self._shortest_ns, frame.step_ns) if self.steps else frame.step_ns
        self.steps += 1
        self._step_ns += frame.step_ns
        count, ns = self._sums.get(frame.layout, (0, 0))
        self._sums[frame.layout] = count + 1, ns + frame.total_ns

    def measured(self) -> Measured:
        """Return the steps so far by name."""
        total: dict[str, int] = {}
        own: dict[str, int] = {}
        calls: dict[str, float] = {}
        for layout, (count, ns) in self._sums.items():
            rows = step_rows(layout)
            totals, selves = rows.totals(ns).tolist(), rows.sums(layout.self_ns(ns)).tolist()
            for key, row_ns, self_ns, row_calls in zip(rows.keys, totals, selves, rows.calls.tolist(), strict=True):
                if key.lane != TRAINING_LANE or not key.phase.traits.in_module:
                    continue
                # A recompute lies inside the backward of its module, or of the module around it.
                total[key.name] = total.get(key.name, 0) + (0 if key.phase is Phase.RECOMPUTE else row_ns)
                own[key.name] = own.get(key.name, 0) + self_ns
                if key.phase is Phase.FORWARD:
                    calls[key.name] = calls.get(key.name, 0.0) + row_calls * count / self.steps
        return Measured(self.steps, self._step_ns, self._shortest_ns, total, own, calls)


class RowChoice(Observer):
    """Drop rows that the budget does not afford, and record them again when it does. ``floor`` are never dropped."""

    def __init__(self, floor: Collection[str]) -> None:
        self._floor = floor
        self._dropped: dict[str, float] = {}
        """The rows that are not recorded, and their worth when they were dropped."""
        self._allowed: float | None = None
        """The marks in a step that the budget affords; None before it is known."""
        self._calls: dict[str, float] = {}
        self._meter = Meter()
        self._last: Measured | None = None
        """The last steps that were added up; those of other rows are better than none."""
        self._number = 0

    def fit(self, share: float) -> float:
        """Record rows whose marks are at most ``share`` of the present ones; return their share.

        The rows that hold least time for each of their marks are dropped first, and come back last. Where the rows that
        are never dropped have more marks, the others may have as many as these.
        """
        names, measured = self._recorded_names(), self._measure()
        self._calls.update(measured.calls)
        marks = before = self._marks_of(names)
        floor = self._marks_of(name for name in names if name in self._floor)
        self._allowed = share * marks if share * marks >= floor else min(2 * floor, marks)
        changed = False
        if share < 1:
            inner_first = names[::-1]
            worth = {name: self._worth(name, measured) for name in inner_first}
            for name in sorted(inner_first, key=worth.__getitem__):
                if marks > self._allowed and name not in self._floor:
                    self._dropped[name] = worth[name]
                    marks -= self._marks_of((name,))
                    changed = True
        else:
            for name in sorted(self._dropped, key=self._dropped.__getitem__, reverse=True):
                marks += self._marks_of((name,))
                if marks > self._allowed:
                    break
                del self._dropped[name]
                changed = True
        if changed:
            self._change()
        return min(marks / max(before, 1.0), 1.0)

    def _worth(self, name: str, measured: Measured) -> float:
        """Return the row's part of a step for each of its marks, ``inf`` for a row that is not measured yet."""
        if name not in measured.total_ns:
            return inf
        return measured.share(name) / max(self._marks_of((name,)), 1.0)

    def _measure(self) -> Measured:
        """Return the last steps, of the present rows as soon as they are enough."""
        # Steps from which on their times replace those of steps before: a single one may have been interrupted.
        if self._last is None or self._meter.steps >= 8:
            self._last = self._meter.measured()
        return self._last

    def _marks_of(self, names: Iterable[str]) -> float:
        """Return the marks of these rows in a step."""
        # Marks of a call: its begin, its end and its backward's begin; the end of the backward is another's begin.
        return sum(3 * self._calls_of(name) for name in names)

    def _recorded_names(self) -> Sequence[str]:
        """Return the names of the rows, outer ones first."""
        raise NotImplementedError

    def _calls_of(self, name: str) -> float:
        """Return the calls of a row in a step, as they are known or expected."""
        raise NotImplementedError

    def _change(self) -> None:
        """Choose other targets, and begin to measure them."""
        self._number += 1
        self._meter = Meter()


class RuleRows(RowChoice):
    """The rows of the configuration's rules. Those in no other are never dropped.

    ``make_set`` makes the probes of these targets, with the number of the set.
    """

    def __init__(self, targets: Sequence[Target], make_set: Callable[[Sequence[Target], int], TargetSet]) -> None:
        paths = {target.fqn for target in targets}
        super().__init__({target.name for target in targets if not _is_inside(target.fqn, paths)})
        self._targets = tuple(targets)
        self._make_set = make_set
        self._members = dict[str, int]()
        for target in sorted(targets, key=lambda one: one.fqn.count(".") if one.fqn else -1):
            self._members[target.name] = self._members.get(target.name, 0) + 1
        self._described: frozenset[str] = frozenset()
        self.chosen = make_set(self._targets, 0)
        """The targets to record from the next step on."""

    def frames(self, run: FrameRun) -> None:
        """Add the frames of the present targets."""
        for frame in run.frames:
            if frame.cut == self._number and not frame.dropped and not frame.warmup:
                # Steps that the times of rows are added up over, so that they follow a training that changes.
                if self._meter.steps >= 512:
                    self._last, self._meter = self._meter.measured(), Meter()
                self._meter.add(frame)

    def describe_change(self) -> str | None:
        """Return, once, which rows are not recorded from now on, or again."""
        dropped = frozenset(self._dropped)
        new, again = dropped - self._described, self._described - dropped
        self._described = dropped
        notes = []
        if new:
            notes.append(f"{_listed(new)} not recorded, to keep the budget: these rows hold least time for their cost")
        if again:
            notes.append(f"{_listed(again)} recorded again: there is room in the budget")
        return "; ".join(notes) or None

    def _recorded_names(self) -> Sequence[str]:
        return [name for name in self._members if name not in self._dropped]

    def _calls_of(self, name: str) -> float:
        return self._calls.get(name, float(self._members[name]))

    def _change(self) -> None:
        super()._change()
        kept = tuple(target for target in self._targets if target.name not in self._dropped)
        self.chosen = self._make_set(kept, self._number)


def _is_inside(fqn: str, paths: Collection[str]) -> bool:
    """Return whether another of these modules contains this one."""
    parts = fqn.split(".") if fqn else []
    return any(".".join(parts[:length]) in paths for length in range(len(parts)))


def _listed(names: Collection[str]) -> str:
    verb = "is" if len(names) == 1 else "are"
    return f"{shorten(visible(', '.join(sorted(names))), 200)} {verb}"
