"""Measure the rows of a model without ``targets``: shares of the step, marks, and why some rows are not opened.

The tree of module groups is recorded down to a *cut*. Opening a row of the cut means that the groups inside it are
recorded too. After the first steps, and then ever more rarely, the rows are measured: those that take ``OPEN_SHARE`` of
the step are worth opening, unless they are leaves. The ``Controller`` chooses among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ..base.frame import TRAINING_LANE, FrameRun, Layout, Nanoseconds, Phase
from ..base.stats import step_rows
from ..base.storage.atomic import write_atomic
from ..base.summary import Stopped, Summary
from ..resolve.observer import Observer
from ..targets import CutGroup, CutRules, ModuleGroup
from .controller import RecordedRows, RowOption
from .session_probes import TargetSet

OPEN_SHARE: Final = 0.03
"""The part of a step from which a row is opened: the modules inside a smaller one cannot be what makes a step slow."""
MAX_DUE: Final = 512
"""Most steps of a cut from one measurement to the next."""
STOPPED: Final[dict[Stopped | None, str | None]] = {
    None: None,
    "leaf": "no modules inside",
    "small": "a small part of the step",
    "budget": "timing the modules inside would exceed the budget",
    "hidden": "hooks do not fire inside",
}
"""What ``targets.yaml`` says of each reason."""


class ModuleRows(RecordedRows, Observer):
    """Follow the frames of a run, and record the rows that are chosen.

    ``make_set`` makes the probes of these groups, with the number of the cut. The run begins with the groups ``first``,
    which stay recorded. At the end ``targets.yaml`` is written to ``folder``: the groups as rules, with their shares.
    """

    provides = "reasons for which rows are not opened"

    def __init__(
        self,
        root: ModuleGroup,
        first: Iterable[ModuleGroup],
        make_set: Callable[[Iterable[ModuleGroup], int], TargetSet],
        folder: Path | None = None,
    ) -> None:
        self._root = root
        self._folder = folder
        self._make_set = make_set
        self._parents = {child.name: group for group in root.below() for child in group.children}
        self._first = {root.name, *(self._parents[one.name].name for one in first if one is not root)}
        self._opened = set(self._first)
        self._hidden: set[str] = set()
        """The groups that were opened, and none of whose parts was ever seen."""
        self._calls: dict[str, float] = {}
        """The calls in a step of each group that was ever called."""
        self._shares: dict[str, float] = {}
        """The part of the step in which each group was seen to run."""
        self._worth: dict[str, float] = {}
        """The part of the step that opening each group of the cut may explain."""
        self._due = 1
        """The steps of the cut after which it is measured."""
        super().__init__(make_set(self.groups, 0))
        self._begin()

    def _begin(self) -> None:
        """Begin to measure."""
        self._step_ns: list[int] = []
        self._sums: dict[Layout, tuple[int, Nanoseconds]] = {}
        """The steps of each layout, and the sums of their spans."""

    # Measure.

    def frames(self, run: FrameRun) -> None:
        """Add the steps of the present cut; measure its rows when they are due."""
        begin = int(run.steps[0] == 1)  # a first step initialises
        if run.cut == self.chosen.number and not run.dropped and len(run.steps) > begin:
            self._step_ns += run.step_ns[begin:]
            steps, ns = self._sums.get(run.layout, (0, 0))
            self._sums[run.layout] = steps + len(run.steps) - begin, ns + run.total_ns[begin:].sum(axis=0)
            if len(self._step_ns) >= self._due:
                self._measure()
                self._due = min(2 * self._due, MAX_DUE)

    def _measure(self) -> None:
        """Compute calls and shares of the rows in the steps so far, and begin anew."""
        total_ns, self_ns, calls = Counter[str](), Counter[str](), Counter[str]()
        for layout, (steps, ns) in self._sums.items():
            rows = step_rows(layout)
            columns = rows.totals(ns).tolist(), rows.sums(layout.self_ns(ns)).tolist(), rows.calls.tolist()
            for (name, phase, lane), row_ns, row_self_ns, row_calls in zip(rows.keys, *columns, strict=True):
                if lane != TRAINING_LANE or not phase.traits.in_module:
                    continue
                # A recompute lies inside the backward of its module, or of the module around it.
                total_ns[name] += 0 if phase is Phase.RECOMPUTE else row_ns
                self_ns[name] += row_self_ns
                if phase is Phase.FORWARD:
                    calls[name] += row_calls * steps
        step_ns = max(sum(self._step_ns), 1)
        self._calls.update((name, count / len(self._step_ns)) for name, count in calls.items())
        self._shares = {name: total_ns[name] / step_ns for name in calls}
        self._worth = {}
        self._compare(self._root, {name: self_ns[name] / step_ns for name in calls}, 1.0 - self_ns.total() / step_ns)
        self._hidden.update(group.name for group in self.groups if self._is_hidden(group))
        self.shortest_ns, self.is_measured = min(self._step_ns), True
        self._begin()

    def _compare(self, group: ModuleGroup, own: dict[str, float], around: float) -> float:
        """Find the worth of a group and of those recorded inside it; return its own.

        That of a group that was not called is the time ``around`` it, which may be inside it: a module whose
        ``forward`` is called directly, or that only holds others, is not seen; those in it are.
        """
        around = own.get(group.name, around)
        inside = [self._compare(child, own, around) for child in self._recorded(group)]
        self._worth[group.name] = worth = max(self._shares.get(group.name, around), *inside, 0.0)
        return worth

    def _is_hidden(self, group: ModuleGroup) -> bool:
        """Return whether none of its parts was called, as inside a module that another compiler than inductor runs."""
        if group.name not in self._opened - self._first or any(one.name in self._opened for one in group.visible):
            return False
        return not any(part.name in self._calls for part in group.visible)

    # The rows to choose from.

    @property
    def options(self) -> list[RowOption]:
        """The rows that are open or worth opening, each after the row that it lies in."""
        found = []
        for group in self.groups:
            name, share = group.name, self._worth.get(group.name, 0.0)
            is_open, stays = name in self._opened, name in self._first
            if (name not in self._hidden and group.visible and (is_open or share >= OPEN_SHARE)) or stays:
                marks = self._marks_of(group.visible) + (self._marks_of([group]) if group is self._root else 0.0)
                parent = self._parents.get(name)
                found.append(RowOption(name, share, marks, is_open, stays, None if parent is None else parent.name))
        return found

    def use(self, rows: Iterable[RowOption]) -> bool:
        """Open these rows and no others; return whether that changes anything."""
        opened = {row.name for row in rows}
        if opened == self._opened:
            return False
        self._opened, number = opened, self.chosen.number + 1
        self._due = min(2 ** max(number - 6, 0), MAX_DUE)
        self._begin()
        self.chosen = self._make_set(self.groups, number)
        return True

    @property
    def groups(self) -> list[ModuleGroup]:
        """The groups of the cut, parents first: the children of opened groups, and the model."""
        found: list[ModuleGroup] = []
        pending = [self._root]
        while pending:
            group = pending.pop()
            found.append(group)
            pending.extend(reversed(self._recorded(group)))
        return found

    def _recorded(self, group: ModuleGroup) -> list[ModuleGroup]:
        """Return the groups inside that are recorded."""
        return group.visible if group.name in self._opened else []

    def _marks_of(self, groups: Iterable[ModuleGroup]) -> float:
        """Return the marks of these rows in a step."""
        # Marks of a call: its begin, its end and its backward's begin; the end of the backward is another's begin.
        return sum(3 * self._calls_of(group) for group in groups)

    def _calls_of(self, group: ModuleGroup) -> float:
        """Return the calls in a step; where they are not known, as many for each member as the group around has."""
        known, parent = self._calls.get(group.name), self._parents.get(group.name)
        if known is not None:
            return known
        return group.blocks * (1.0 if parent is None else max(self._calls_of(parent) / parent.blocks, 1.0))

    # The reports.

    @property
    def stopped(self) -> dict[str, Stopped | None]:
        """The reason for which each group of the cut is not opened; None where it is."""
        return {group.name: self._stopped(group) for group in self.groups}

    def _stopped(self, group: ModuleGroup) -> Stopped | None:
        if group.name in self._hidden:
            return "hidden"
        if not group.visible:
            return "hidden" if group.hidden or any(child.hidden for child in group.children) else "leaf"
        if group.name in self._opened:
            return None
        return "budget" if self._worth.get(group.name, 0.0) >= OPEN_SHARE else "small"

    def annotate(self, summary: Summary) -> Summary:
        """Return the summary with the reasons for which its rows are not opened."""
        stopped = self.stopped
        rows = tuple(replace(row, stopped=stopped[row.name]) if row.name in stopped else row for row in summary.rows)
        table = tuple(row for row in summary.memory_table if row.name is None or row.name in stopped)
        return replace(summary, rows=rows, memory_table=table)

    def finish(self, *, complete: bool) -> Mapping[str, Any]:
        """Write ``targets.yaml``."""
        if self._folder is not None:
            groups = [CutGroup(one, self._shares.get(one.name), STOPPED[self._stopped(one)]) for one in self.groups]
            with suppress(ReferenceError):  # the program has dropped the model, whose tree gives the rules
                write_atomic(self._folder / "targets.yaml", CutRules(self._root.nodes[0].module).yaml(groups))
        return {}
