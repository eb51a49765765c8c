"""Choose the modules to record where the configuration names none: open the rows that hold most time.

The tree of module groups is recorded down to a *cut*. After the first steps, and then ever more rarely, the rows of the
cut are compared with the step: a row that takes ``OPEN_SHARE`` of it is opened, which means that the groups inside it
are recorded too. It stays closed where it is a leaf, a small part of the step, or where the budget does not afford the
marks inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from .._capture.mark_cost import MarkCost
from .._targets import ModuleGroup
from ..frame import FrameRun
from ..summary import Stopped, Summary
from .row_choice import Measured, Meter, RowChoice
from .sampling import TargetSet

OPEN_SHARE: Final = 0.03
"""The part of a step from which a row is opened: the modules inside a smaller one cannot be what makes a step slow."""
REOPEN_SHARE: Final = 0.06
"""The same once the cut has settled, so that a row near the limit does not change it again and again."""


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """The recorded groups, parents first, and the reason for which each of them is not opened; None where it is."""

    groups: tuple[ModuleGroup, ...]
    stopped: Mapping[str, Stopped | None] = field(default_factory=dict)


class Zoom(RowChoice):
    """Follow the frames of a run and choose the cut.

    ``make_set`` makes the probes of these groups, with the number of the cut. ``first`` are the groups to begin with.
    Of these the model and its blocks are never dropped.
    """

    provides = "reasons for which rows are not opened"

    def __init__(
        self,
        root: ModuleGroup,
        first: Iterable[ModuleGroup],
        make_set: Callable[[Iterable[ModuleGroup], int], TargetSet],
        budget: float | None,
        mark_cost: MarkCost,
    ) -> None:
        first = tuple(first)
        super().__init__(_model_and_blocks(root, {group.name for group in first}))
        self._root = root
        self._make_set = make_set
        self._budget = budget
        # A mark with its resolution and statistics costs about so many times the mark, before the account shows it.
        self._mark_ns = 2.0 * mark_cost.of(1)
        self._groups = {group.name: group for group in root.below()}
        self._parents = {child.name: group for group in root.below() for child in group.children}
        self._opened = {root.name, *(self._parents[one.name].name for one in first if one is not root)}
        self._over_budget: set[str] = set()
        self._changes = self._unchanged = 0
        self._due = 1
        self.cut = self._cut()
        """The present cut."""
        self.chosen = make_set(self.cut.groups, 0)
        """The targets of the present cut."""

    # From one frame to the next.

    def frames(self, run: FrameRun) -> None:
        """Add the frames of the present cut; check the cut when it is due."""
        for frame in run.frames:
            if frame.cut == self._number and not frame.dropped and frame.step > 1:  # a first step initialises
                self._meter.add(frame)
                if self._meter.steps >= self._due:
                    self._check()

    def _check(self) -> None:
        """Open rows where the steps so far show that they hold much time."""
        measured = self._last = self._meter.measured()
        self._meter = Meter()
        self._calls.update(measured.calls)
        before = self._recorded_names()
        self._choose(measured)
        self._due *= 2
        if self._recorded_names() != before:
            self._changes += 1
            self._change()
            return
        self._unchanged += 1
        cut = self._cut()
        if cut.stopped != self.cut.stopped:
            self.cut = cut
        self._due = min(self._due, 512)

    def _change(self) -> None:
        super()._change()
        self._unchanged = 0
        self._due = 2 ** min(max(self._changes - 6, 0), 9)
        self.cut = self._cut()
        self.chosen = self._make_set(self.cut.groups, self._number)

    @property
    def has_settled(self) -> bool:
        """Whether the last checks changed nothing."""
        return self._unchanged >= 2

    def shares(self) -> dict[str, float]:
        """Return the part of a step that each group of the cut takes; empty before the first step of it."""
        measured = self._last if self._last is not None or not self._meter.steps else self._meter.measured()
        return {} if measured is None else {group.name: measured.share(group.name) for group in self.cut.groups}

    def describe_change(self) -> None:
        """Return nothing: the rows of reports say which of them the budget keeps closed."""

    # The choice.

    def _choose(self, measured: Measured) -> None:
        """Open the longest rows that are affordable."""
        self._over_budget.clear()
        recorded, affordable = self._recorded(), self._affordable(measured)
        marks = self._marks_of(group.name for group in recorded)
        least = REOPEN_SHARE if self.has_settled else OPEN_SHARE
        shares = {group.name: self._share(group, measured) for group in recorded}
        wanted = [group for group in recorded if shares[group.name] >= least and self._can_open(group)]
        for group in sorted(wanted, key=lambda one: -shares[one.name]):
            needed = marks + self._marks_of(child.name for child in group.visible)
            if needed > affordable:
                self._over_budget.add(group.name)
            else:
                self._opened.add(group.name)
                marks = needed

    def _affordable(self, measured: Measured) -> float:
        """Return the marks in a step that the budget affords: by the account, at first by the shortest step."""
        if self._allowed is not None:
            return self._allowed
        if self._budget is None or not self._mark_ns:
            return float("inf")
        return self._budget * measured.shortest_ns / self._mark_ns

    def _share(self, group: ModuleGroup, measured: Measured) -> float:
        """Return the group's part of the step; of one that was not called, the time around it, which may be inside it.

        A module whose ``forward`` is called directly, or that only holds others, is not seen; those in it are.
        """
        if group.name in measured.calls:
            return measured.share(group.name)
        parent = self._parents.get(group.name)
        while parent is not None and parent.name not in measured.calls:
            parent = self._parents.get(parent.name)
        if parent is not None:
            return measured.own_share(parent.name)
        return 1.0 - sum(measured.self_ns.values()) / max(measured.step_ns, 1)

    def _can_open(self, group: ModuleGroup) -> bool:
        return group.name not in self._opened and bool(group.visible)

    def _calls_of(self, name: str) -> float:
        """Return the calls in a step; where they are not known, as many for each member as the group around has."""
        known = self._calls.get(name)
        if known is not None:
            return known
        parent = self._parents.get(name)
        around = 1.0 if parent is None else max(self._calls_of(parent.name) / parent.blocks, 1.0)
        return self._groups[name].blocks * around

    def _recorded_names(self) -> Sequence[str]:
        return [group.name for group in self._recorded()]

    def _recorded(self) -> list[ModuleGroup]:
        """Return the groups of the cut, parents first: the children of opened groups, and the model."""
        found: list[ModuleGroup] = []
        pending = [self._root]
        while pending:
            group = pending.pop()
            if group.name not in self._dropped:
                found.append(group)
            if group.name in self._opened:
                pending.extend(reversed(group.visible))
        return found

    def _cut(self) -> Cut:
        recorded = self._recorded()
        return Cut(tuple(recorded), {group.name: self._stopped(group) for group in recorded})

    def _stopped(self, group: ModuleGroup) -> Stopped | None:
        if group.name in self._opened and any(child.name not in self._dropped for child in group.visible):
            return None
        if not group.visible:
            return "hidden" if group.hidden is not None or any(child.hidden for child in group.children) else "leaf"
        lacks = group.name in self._over_budget or any(child.name in self._dropped for child in group.children)
        return "budget" if lacks else "small"

    # The summary.

    def annotate(self, summary: Summary) -> Summary:
        """Return the summary with the reasons for which its rows are not opened."""
        stopped = self.cut.stopped
        rows = tuple(replace(row, stopped=stopped[row.name]) if row.name in stopped else row for row in summary.rows)
        table = tuple(row for row in summary.memory_table if row.name is None or row.name in stopped)
        return replace(summary, rows=rows, memory_table=table)


def _model_and_blocks(root: ModuleGroup, first: Collection[str]) -> set[str]:
    """Return the names of the model and of the levels below it, down to one with equal blocks; not of too many."""
    names, modules, level = {root.name}, 0, root.visible
    while level and all(group.name in first for group in level):
        modules += sum(group.blocks for group in level)
        # The most modules whose rows are never dropped: marks of more cost a millisecond in each step that is recorded.
        if modules > 100:
            break
        names.update(group.name for group in level)
        if any(group.blocks > 1 for group in level):
            break
        level = [child for group in level for child in group.visible]
    return names
