"""Choose the modules to record where the configuration names none: open the rows that hold most time.

The tree of module groups is recorded down to a *cut*. After the first steps, and then ever more rarely, the rows of the
cut are compared with the step: a row that takes ``OPEN_SHARE`` of it is opened, which means that the groups inside it
are recorded too. It stays closed where it is a leaf, a small part of the step, or where recording more calls would cost
more than ``MAX_STEPS_PER_RECORDED`` steps' worth of the budget. A block that takes much longer than the others of its
group is split off it, and has a row of its own from then on.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from .._capture.mark_cost import MarkCost
from .._notes import Notes
from .._observer import Observer
from .._stats import step_rows
from ..frame import TRAINING_LANE, FrameRun, Layout, Nanoseconds, Phase, StepFrame
from ..summary import Stopped, Summary
from .governor import Governor
from .observers import CompiledModules
from .sampling import Level
from .unlike_members import KEPT_FRAMES, MAX_UNLIKE, unlike_members

if TYPE_CHECKING:
    from .._targets import ModuleGroup, ModuleNode

OPEN_SHARE: Final = 0.03
"""The part of a step from which a row is opened: the modules inside a smaller one cannot be what makes a step slow."""
REOPEN_SHARE: Final = 0.06
"""The same once the cut has settled, so that a row near the limit does not change it again and again."""
DROP_SHARE: Final = 0.01
"""Where not every step can be recorded, rows of a smaller part than this are dropped: their cost buys more steps."""
MAX_STEPS_PER_RECORDED: Final = 4
"""The most steps whose budget one recorded step may cost: at least each fourth step can be recorded."""
SETTLED_CHECKS: Final = 2
"""Checks in a row that changed nothing, after which the cut has settled."""
MAX_CHANGES: Final = 32
"""Changes of the cut in one run; after that it stays as it is."""
OPEN_MARGIN: Final = 0.8
"""The part of that limit up to which rows are opened, so that one at the limit is not opened and closed in turn."""
AHEAD_MARGIN: Final = 0.5
"""The same for rows inside those just opened, which are not measured yet: they are opened ahead to save steps."""
AHEAD_SHARE: Final = 0.5
"""The assumed part of an opened row that a row inside it takes."""
AHEAD_GROUPS: Final = 150
"""Recorded groups beyond which no row is opened ahead: each row costs time when a step is resolved."""
MANY_GROUPS: Final = 64
"""Recorded groups beyond which small ones are closed even where recording them is cheap."""
MARKS_PER_CALL: Final = 3
"""Marks of a call: its begin, its end and its backward's begin; the end of the backward is another's begin."""
MAX_CHECK_STEPS: Final = 512
"""The most recorded steps between two checks."""
SILENT_STEPS: Final = 10
"""Recorded steps without a call of any module, after which a note says so."""


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """The recorded groups, parents first, and the reason for which each of them is not opened; None where it is."""

    groups: tuple[ModuleGroup, ...]
    stopped: Mapping[str, Stopped | None] = field(default_factory=dict)


class _Measured(NamedTuple):
    """One cut's steps so far, by the name of a row: total and self time of all phases, and calls in a step."""

    steps: int
    step_ns: int
    total_ns: Mapping[str, int]
    self_ns: Mapping[str, int]
    calls: Mapping[str, float]

    def share(self, group: ModuleGroup) -> float:
        """Return the part of the steps' time in which the group ran."""
        return self.total_ns.get(group.name, 0) / self.step_ns if self.step_ns else 0.0

    def own_share(self, group: ModuleGroup) -> float:
        """Return the part of the steps' time in which the group ran and none of the recorded groups inside it."""
        return self.self_ns.get(group.name, 0) / self.step_ns if self.step_ns else 0.0


class _CutMeter:
    """Add up the steps of one cut."""

    def __init__(self) -> None:
        self.steps = 0
        self._step_ns = 0
        self._sums: dict[Layout, tuple[int, Nanoseconds]] = {}

    def add(self, frame: StepFrame) -> None:
        """Add one step."""
        self.steps += 1
        self._step_ns += frame.step_ns
        count, ns = self._sums.get(frame.layout, (0, 0))
        self._sums[frame.layout] = count + 1, ns + frame.total_ns

    def measured(self) -> _Measured:
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
        return _Measured(self.steps, self._step_ns, total, own, calls)


class Zoom(Observer):
    """Follow the frames of a run and choose the cut; ``level`` has the probes of the present one.

    ``make_level`` makes the probes of these groups, with the number of the cut. ``first`` are the groups to begin with.
    """

    provides = "reasons for which rows are not opened"

    def __init__(
        self,
        root: ModuleGroup,
        first: Iterable[ModuleGroup],
        make_level: Callable[[Iterable[ModuleGroup], int], Level],
        governor: Governor,
        mark_cost: MarkCost,
        notes: Notes,
        compiled: CompiledModules | None = None,
    ) -> None:
        self._root = root
        self._compiled = compiled
        self._make_level = make_level
        self._governor = governor
        self._call_ns = MARKS_PER_CALL * max(mark_cost.forward_ns, mark_cost.backward_ns)
        self._notes = notes
        self._index_tree()
        chosen = {group.name for group in first}
        self._opened = {self._parents[name].name for name in chosen if name in self._parents} | {root.name}
        self._dropped: set[str] = set()
        self._expected_own: dict[str, float] = {}
        """The own share of groups around dropped rows, as it was expected when they were dropped."""
        self._over_budget: set[str] = set()
        self._usual_calls: dict[str, float] = {}
        self._number = self._changes = self._unchanged = 0
        self._meter = _CutMeter()
        self._recent: deque[StepFrame] = deque(maxlen=KEPT_FRAMES)
        self._split_off: Counter[str] = Counter()
        """The members that were split off each group."""
        self._due = 1
        self._began = False
        self._silent_steps = 0
        self._last: _Measured | None = None
        self.cut = self._cut()
        """The present cut."""
        self.level = make_level(self.cut.groups, 0)
        """The probes of the present cut."""

    def _index_tree(self) -> None:
        self._groups = {group.name: group for group in self._root.below()}
        self._parents = {child.name: group for group in self._root.below() for child in group.children}

    # From one frame to the next.

    def frames(self, run: FrameRun) -> None:
        """Add the frames of the present cut; check the cut when it is due."""
        for frame in run.frames:
            self._add(frame)

    def _add(self, frame: StepFrame) -> None:
        if frame.cut != self._number or frame.dropped:
            return
        if not self._began:  # the first step of a run allocates and initialises: its times mislead
            self._began = True
            return
        self._meter.add(frame)
        self._recent.append(frame)
        if self._meter.steps >= self._due:
            self._check()

    def _check(self) -> None:
        """Change the cut where the steps so far show that it should be another."""
        measured = self._last = self._meter.measured()
        self._meter = _CutMeter()
        self._silent_steps = 0 if measured.calls else self._silent_steps + measured.steps
        if self._silent_steps >= SILENT_STEPS and not (self._compiled is not None and self._compiled.model_hidden):
            self._notes.warn_once(
                f"no module of the model was called in {SILENT_STEPS} recorded steps: only calls such as model(x) are "
                "seen, not model.forward(x), functions that use its parameters, or a compiled function around it"
            )
        self._usual_calls.update(measured.calls)
        before = {group.name for group in self.cut.groups}
        if self._changes < MAX_CHANGES and not self._split_unlike():  # a row that is split off is measured first
            self._choose(measured)
        cut = self._cut()
        self._due *= 2
        if {group.name for group in cut.groups} == before:
            self._unchanged += 1
            if cut.stopped != self.cut.stopped:
                self.cut = cut
            self._due = min(self._due, MAX_CHECK_STEPS)
            return
        self._changes += 1
        self._unchanged = 0
        self._number += 1
        self._due = max(1, 2 ** min(self._changes - 3, 9))
        self.cut, self.level = cut, self._make_level(cut.groups, self._number)

    @property
    def has_settled(self) -> bool:
        """Whether the last checks changed nothing."""
        return self._unchanged >= SETTLED_CHECKS

    def shares(self) -> dict[str, float]:
        """Return the part of a step that each group of the cut takes; empty before the first check."""
        measured = self._last if self._last is not None or not self._meter.steps else self._meter.measured()
        return {} if measured is None else {group.name: measured.share(group) for group in self.cut.groups}

    # Blocks unlike the others of their group.

    def _split_unlike(self) -> bool:
        """Split off members that are unlike the others of their recorded group; return whether there are any."""
        found = False
        pending = [self._root]
        while pending:  # from the outside in: a slow part of a block that stands alone is in no group
            group = pending.pop()
            members = unlike_members(group, self._recent)
            if members and self._split_off[group.name] + len(members) <= MAX_UNLIKE:
                found = self._split(group, members) or found
                group = self._groups[group.name]
            if group.name in self._opened:
                pending.extend(group.children)
        return found

    def _split(self, group: ModuleGroup, members: Collection[ModuleNode]) -> bool:
        """Give these members groups of their own, as open as theirs was; return whether that is possible."""
        from .._targets import split_group

        split = split_group(self._root, group, members)
        if split is None:
            return False
        before = self._groups
        self._root = split.root
        self._index_tree()
        self._split_off[group.name] += len(members)
        calls = {one.name: self._usual_calls.pop(one.name, None) for one in group.below()}
        pairs = [(one.name, one.name) for one in group.below() if one.name in self._groups]
        pairs += [
            (group.name + one.name.removeprefix(alone.name), one.name) for alone in split.alone for one in alone.below()
        ]
        for old, new in pairs:
            known = calls[old]
            if known is not None:
                self._usual_calls[new] = known * self._groups[new].blocks / before[old].blocks
            for names in (self._opened, self._dropped, self._over_budget):
                if old in names:
                    names.add(new)
        self._expected_own = {name: own for name, own in self._expected_own.items() if name in self._groups}
        return True

    # The choice.

    def _choose(self, measured: _Measured) -> None:
        """Open and close groups: close while the cut costs too much, then open the longest rows that are affordable."""
        share = self._governor.spendable_share
        step_ns = measured.step_ns / measured.steps
        limit_ns = float("inf") if share is None else MAX_STEPS_PER_RECORDED * share * step_ns
        settled = self.has_settled
        self._over_budget.clear()
        self._record_grown(measured)
        cost_ns = self._cost_ns(self._recorded())
        if not settled:
            skips_steps = cost_ns > limit_ns / MAX_STEPS_PER_RECORDED
            if skips_steps or len(self._recorded()) > MANY_GROUPS:
                self._close_small(measured)
            if skips_steps:
                self._drop_small(measured)
            cost_ns = self._cost_ns(self._recorded())
        if cost_ns > limit_ns * (1.5 if settled else 1.0):
            cost_ns = self._close(measured, cost_ns, limit_ns)
        least = REOPEN_SHARE if settled else OPEN_SHARE
        waiting: list[tuple[float, int, ModuleGroup, bool]] = []
        for place, group in enumerate(self._recorded()):
            share = self._share(group, measured)
            if share >= least and self._can_open(group):
                heappush(waiting, (-share, place, group, True))
        recorded = len(self._recorded())
        place = recorded
        while waiting:
            share, _, group, known = heappop(waiting)
            inside_ns = self._cost_ns(_visible(group))
            if cost_ns + inside_ns > limit_ns * (OPEN_MARGIN if known else AHEAD_MARGIN):
                if known:
                    self._over_budget.add(group.name)
                continue
            self._opened.add(group.name)
            cost_ns += inside_ns
            recorded += len(_visible(group))
            for child in _visible(group):
                expected = share * AHEAD_SHARE
                if -expected >= OPEN_SHARE and recorded <= AHEAD_GROUPS and self._can_open(child):
                    place += 1
                    heappush(waiting, (expected, place, child, False))

    def _share(self, group: ModuleGroup, measured: _Measured) -> float:
        """Return the group's part of the step; of one that was not called, the time around it, which may be inside it.

        A module whose ``forward`` is called directly, or that only holds others, is not seen; those in it are.
        """
        if group.name in measured.calls:
            return measured.share(group)
        parent = self._parents.get(group.name)
        while parent is not None and parent.name not in measured.calls:
            parent = self._parents.get(parent.name)
        if parent is not None:
            return measured.own_share(parent)
        return 1.0 - sum(measured.self_ns.values()) / max(measured.step_ns, 1)

    def _can_open(self, group: ModuleGroup) -> bool:
        return group.name not in self._opened and bool(_visible(group))

    def _close_small(self, measured: _Measured) -> None:
        """Close groups that were opened ahead and turned out to be a small part of the step."""
        for group in self._recorded():
            if group is not self._root and 0 < measured.share(group) < DROP_SHARE:
                self._opened.discard(group.name)

    def _drop_small(self, measured: _Measured) -> None:
        """Record rows no longer that are a small part of the step."""
        for group in self._recorded():
            parent = self._parents.get(group.name)
            if parent is None or self._is_open(group) or not 0 < measured.share(group) < DROP_SHARE:
                continue
            self._dropped.add(group.name)
            own = self._expected_own.get(parent.name, measured.own_share(parent))
            self._expected_own[parent.name] = own + measured.share(group)

    def _record_grown(self, measured: _Measured) -> None:
        """Record rows again that were dropped, where the time of the group around them has grown since."""
        for name, own in list(self._expected_own.items()):
            group = self._groups[name]
            if measured.own_share(group) >= own + REOPEN_SHARE:
                del self._expected_own[name]
                self._dropped.difference_update(child.name for child in group.children)

    def _close(self, measured: _Measured, cost_ns: float, limit_ns: float) -> float:
        """Close the groups that are the smallest part of the step, innermost first; return the cost of the rest."""
        while cost_ns > limit_ns:
            ends = [
                group
                for group in self._recorded()
                if self._is_open(group) and group is not self._root and not any(map(self._is_open, group.children))
            ]
            if not ends:
                break
            least = min(ends, key=measured.share)
            cost_ns -= self._cost_ns(child for child in _visible(least) if child.name not in self._dropped)
            self._opened.remove(least.name)
            self._over_budget.add(least.name)
        return cost_ns

    def _is_open(self, group: ModuleGroup) -> bool:
        return group.name in self._opened

    def _cost_ns(self, groups: Iterable[ModuleGroup]) -> float:
        """Return the expected cost of recording the groups in one step."""
        return self._call_ns * sum(self._calls(group) for group in groups)

    def _calls(self, group: ModuleGroup) -> float:
        """Return the calls in a step; where they are not known, as many for each member as the group around has."""
        known = self._usual_calls.get(group.name)
        if known is not None:
            return known
        parent = self._parents.get(group.name)
        around = 1.0 if parent is None else max(self._calls(parent) / parent.blocks, 1.0)
        return group.blocks * around

    def _recorded(self) -> list[ModuleGroup]:
        """Return the groups of the cut, parents first: the children of opened groups, and the model."""
        found: list[ModuleGroup] = []
        pending = [self._root]
        while pending:
            group = pending.pop()
            if group.name not in self._dropped:
                found.append(group)
            if group.name in self._opened:
                pending.extend(reversed(_visible(group)))
        return found

    def _cut(self) -> Cut:
        recorded = self._recorded()
        return Cut(tuple(recorded), {group.name: self._stopped(group) for group in recorded})

    def _stopped(self, group: ModuleGroup) -> Stopped | None:
        if group.name in self._opened and _visible(group):
            return None
        if not _visible(group):
            return "hidden" if group.hidden is not None or any(child.hidden for child in group.children) else "leaf"
        return "budget" if group.name in self._over_budget else "small"

    # The summary.

    def annotate(self, summary: Summary) -> Summary:
        """Return the summary with the reasons for which its rows are not opened."""
        stopped = self.cut.stopped
        rows = tuple(replace(row, stopped=stopped[row.name]) if row.name in stopped else row for row in summary.rows)
        table = tuple(row for row in summary.memory_table if row.name is None or row.name in stopped)
        return replace(summary, rows=rows, memory_table=table)


def is_recordable(group: ModuleGroup) -> bool:
    """Return whether hooks on the group's members fire when they are called."""
    return group.hidden is None and group.nodes[0].called


def _visible(group: ModuleGroup) -> list[ModuleGroup]:
    """Return the groups inside whose hooks fire, without those that do nothing."""
    return [child for child in group.children if child.hidden is None and child.class_name != "Identity"]
