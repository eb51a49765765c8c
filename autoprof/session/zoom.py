"""Choose the modules to record where the configuration names none: open the rows that hold most time.

The tree of module groups is recorded down to a *cut*. After the first steps, and then ever more rarely, the rows of the
cut are compared with the step: a row that takes ``OPEN_SHARE`` of it is opened, which means that the groups inside it
are recorded too. It stays closed where it is a leaf, a small part of the step, or where the budget does not afford the
marks inside it. Where recording costs more than the budget, opened rows that hold least time are closed first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf, isinf
from pathlib import Path
from typing import Any, Final

from ..base.frame import FrameRun
from ..base.storage.atomic import write_atomic
from ..base.summary import Stopped, Summary
from ..resolve.observer import Observer
from ..targets import CutGroup, CutRules, ModuleGroup
from .row_times import RowTimes
from .session_probes import TargetSet

OPEN_SHARE: Final = 0.03
"""The part of a step from which a row is opened: the modules inside a smaller one cannot be what makes a step slow."""
STOPPED: Final[dict[Stopped | None, str | None]] = {
    None: None,
    "leaf": "no modules inside",
    "small": "a small part of the step",
    "budget": "timing the modules inside would exceed the budget",
    "hidden": "hooks do not fire inside",
}
"""What ``targets.yaml`` says of each reason."""


class Zoom(Observer):
    """Follow the frames of a run and choose the cut.

    ``make_set`` makes the probes of these groups, with the number of the cut. ``rate`` is the fraction of the run's
    time that recording may take, infinity without a budget. The run begins with the groups ``first``, which stay
    recorded. At the end ``targets.yaml`` is written to ``folder``: the groups as rules, with their shares.
    """

    provides = "reasons for which rows are not opened"

    def __init__(
        self,
        root: ModuleGroup,
        first: Iterable[ModuleGroup],
        make_set: Callable[[Iterable[ModuleGroup], int], TargetSet],
        rate: float,
        mark_ns: float,
        folder: Path | None = None,
    ) -> None:
        self._root = root
        self._folder = folder
        self._make_set = make_set
        self._rate = rate
        # A mark with its resolution and statistics costs about so many times the mark, before the account shows it.
        self._mark_ns = 2.0 * mark_ns
        self._groups = {group.name: group for group in root.below()}
        self._parents = {child.name: group for group in root.below() for child in group.children}
        self._first = {root.name, *(self._parents[one.name].name for one in first if one is not root)}
        self._opened = set(self._first)
        self._over_budget: set[str] = set()
        self._hidden: set[str] = set()
        """The groups that were opened, and none of whose parts was ever seen."""
        self._allowed: float | None = None
        """The marks in a step that the budget affords; None before it is known."""
        self._calls: dict[str, float] = {}
        self._adding = RowTimes()
        self._times: RowTimes | None = None
        """The last steps that were added up."""
        self._number = 0
        self._due = 1
        """Steps of the cut from which on it is checked."""
        self.chosen = make_set(self.groups, 0)
        """The targets of the present cut."""

    def frames(self, run: FrameRun) -> None:
        """Add the steps of the present cut; check the cut when it is due."""
        if run.cut == self._number and not run.dropped:
            begin = int(run.steps[0] == 1)  # a first step initialises
            self._adding.add(run.layout, run.step_ns[begin:], run.total_ns[begin:])
            if self._adding.steps >= self._due:
                self._check()

    def _check(self) -> None:
        """Open rows where the steps so far show that they hold much time."""
        times = self._times = self._adding.sum_up()
        self._adding = RowTimes()
        self._calls.update((name, calls / times.steps) for name, calls in times.calls.items())
        before = set(self._opened)
        self._close_hidden()
        self._open_longest(times)
        if self._opened != before:
            self._change()
        else:
            self._due = min(2 * self._due, 512)

    def fit(self, share: float) -> float:
        """Close rows until at most ``share`` of the present marks is left; return the share that is left.

        Above 1 rows may be opened at the next check.
        """
        before = marks = self._marks_of(self.groups)
        self._allowed = share * marks
        if share >= 1:
            if self._over_budget:
                self._due = 1
            return 1.0
        times = self._times or self._adding.sum_up()
        while marks > self._allowed and (closable := self._closable()):
            group = min(closable, key=lambda one: self._share(one, times) / self._marks_of(one.visible))
            self._opened.remove(group.name)
            self._over_budget.add(group.name)
            marks -= self._marks_of(group.visible)
        if marks < before:
            self._change()
        return marks / max(before, 1.0)

    def _change(self) -> None:
        """Record the present cut, and begin to measure it."""
        self._number += 1
        self._adding = RowTimes()
        self._due = 2 ** min(max(self._number - 6, 0), 9)
        self.chosen = self._make_set(self.groups, self._number)

    # The choice.

    def _close_hidden(self) -> None:
        """Close the groups without a call of a part, as inside a module that another compiler than inductor runs."""
        for group in self._closable():
            if not any(part.name in self._calls for part in group.visible):
                self._opened.remove(group.name)
                self._hidden.add(group.name)

    def _open_longest(self, times: RowTimes) -> None:
        """Open the longest rows that are affordable."""
        self._over_budget.clear()
        recorded, affordable = self.groups, self._affordable(times)
        marks = self._marks_of(recorded)
        shares = {group.name: self._share(group, times) for group in recorded}
        closed = [one for one in recorded if one.name not in self._opened | self._hidden and one.visible]
        for group in sorted(closed, key=lambda one: -shares[one.name]):
            if shares[group.name] < OPEN_SHARE:
                break
            needed = marks + self._marks_of(group.visible)
            if needed > affordable:
                self._over_budget.add(group.name)
            else:
                self._opened.add(group.name)
                marks = needed

    def _closable(self) -> list[ModuleGroup]:
        """Return the opened groups that hold no opened one, but those that the run began with."""
        opened = [self._groups[name] for name in self._opened - self._first]
        return [group for group in opened if not any(child.name in self._opened for child in group.visible)]

    def _affordable(self, times: RowTimes) -> float:
        """Return the marks in a step that the budget affords: by the account, at first by the shortest step."""
        if self._allowed is not None:
            return self._allowed
        if isinf(self._rate) or not self._mark_ns:
            return inf
        return self._rate * times.shortest_ns / self._mark_ns

    def _share(self, group: ModuleGroup, times: RowTimes) -> float:
        """Return the group's part of the step; of one that was not called, the time around it, which may be inside it.

        A module whose ``forward`` is called directly, or that only holds others, is not seen; those in it are.
        """
        if group.name in times.calls:
            return times.share(group.name)
        parent = self._parents.get(group.name)
        while parent is not None and parent.name not in times.calls:
            parent = self._parents.get(parent.name)
        if parent is not None:
            return times.own_share(parent.name)
        return 1.0 - sum(times.self_ns.values()) / max(times.step_ns, 1)

    def _marks_of(self, groups: Iterable[ModuleGroup]) -> float:
        """Return the marks of these rows in a step."""
        # Marks of a call: its begin, its end and its backward's begin; the end of the backward is another's begin.
        return sum(3 * self._calls_of(group.name) for group in groups)

    def _calls_of(self, name: str) -> float:
        """Return the calls in a step; where they are not known, as many for each member as the group around has."""
        known = self._calls.get(name)
        if known is not None:
            return known
        parent = self._parents.get(name)
        around = 1.0 if parent is None else max(self._calls_of(parent.name) / parent.blocks, 1.0)
        return self._groups[name].blocks * around

    @property
    def groups(self) -> list[ModuleGroup]:
        """The groups of the cut, parents first: the children of opened groups, and the model."""
        found: list[ModuleGroup] = []
        pending = [self._root]
        while pending:
            group = pending.pop()
            found.append(group)
            if group.name in self._opened:
                pending.extend(reversed(group.visible))
        return found

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
        return "budget" if group.name in self._over_budget else "small"

    # The summary.

    def annotate(self, summary: Summary) -> Summary:
        """Return the summary with the reasons for which its rows are not opened."""
        stopped = self.stopped
        rows = tuple(replace(row, stopped=stopped[row.name]) if row.name in stopped else row for row in summary.rows)
        table = tuple(row for row in summary.memory_table if row.name is None or row.name in stopped)
        return replace(summary, rows=rows, memory_table=table)

    def finish(self, *, complete: bool) -> Mapping[str, Any]:
        """Write ``targets.yaml``."""
        if self._folder is not None:
            times, stopped = self._times or self._adding.sum_up(), self.stopped
            shares = {group.name: times.share(group.name) for group in self.groups} if times.steps else {}
            groups = [CutGroup(group, shares.get(group.name), STOPPED[stopped[group.name]]) for group in self.groups]
            with suppress(ReferenceError):  # the program has dropped the model, whose tree gives the rules
                write_atomic(self._folder / "targets.yaml", CutRules(self._root.nodes[0].module).yaml(groups))
        return {}
