"""Samples of the training thread's stack, matched with the spans of their step: which line ran in no span, as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import add
from typing import Any, Final

import numpy as np

from ..base.frame import TRAINING_LANE, FrameRun, Phase, StepFrame
from ..base.stats.intervals import proportion_factors
from ..base.units import format_percent
from ..capture.marks.codes import KIND_MASK, PAUSE, UNPAUSE
from ..probes import Site
from ..probes.stacks import BACKWARD, Sites, StackProbe, StackSample, lines_around
from ..resolve import RawStep
from ._bounds import MIN_SAMPLES, MIN_SHARE, MOST, NEARLY_ALL
from ._calls import CallSite, call_site, format_place

UNATTRIBUTED: Final = "unattributed"
"""The key of samples in no span; those in a span have its phase and name, those in excluded time ``EXCLUDED``."""
EXCLUDED: Final = "excluded"
CALLS: Final = "calls"
"""Begin of the key of samples in the calls of an outermost module, by the lines that call it."""
LOOKS: Final = 8
"""Runs of frames at which the lines of the training loop are looked up; a loop has a few places where a step ends."""
SHARED_LINE: Final = 0.2
"""Share of all other samples from which on a line calls the training itself (``trainer.train()``), so that a line below
it is named."""
TORCH_WORK: Final = {"forward", BACKWARD, "step"}
"""Functions of torch, called by the innermost line outside it, whose time is that of layers, a backward pass or an
update."""
KEPT_LINES: Final = 5
"""Lines of one kind of time that are kept, those with most of it."""
KEPT_KINDS: Final = 256
"""Kinds of time, lines of each, and steps whose samples wait for their frames."""


@dataclass(frozen=True, slots=True)
class StackTable:
    """Samples of one kind of time. ``lines`` are those with most of it."""

    samples: int
    ns: int
    lines: tuple[CallSite, ...]
    innermost: tuple[CallSite, ...] = ()
    """The innermost lines with most of the time."""

    @property
    def named(self) -> tuple[CallSite, ...]:
        """The lines that certainly have a good part of the time, the longest first."""
        if self.samples < MIN_SAMPLES:
            return ()
        return tuple(line for line in self.lines if self.share_low(line) > MIN_SHARE)

    def share(self, line: CallSite) -> float:
        """Return the line's share of this kind of time."""
        return line.ns / max(self.ns, 1)

    def share_low(self, line: CallSite) -> float:
        """Return the low end of the interval of that share."""
        return self.share(line) * proportion_factors(line.count, self.samples)[0]

    @property
    def dominant(self) -> str | None:
        """The line that has nearly all of the time, as ``train.py:88 save_image``; None where several share it."""
        named = self.named
        return describe_line(named[0]) if named and self.share(named[0]) >= NEARLY_ALL else None

    @property
    def code_in_backward(self) -> StackTable:
        """The named lines but those that begin a backward pass: functions of autograd, or hooks, that it calls."""
        return replace(self, lines=tuple(line for line in self.named if line.call != BACKWARD))

    @property
    def lines_share(self) -> float:
        """The share of all lines together."""
        return sum(map(self.share, self.lines))

    @property
    def is_torch_work(self) -> bool:
        """Whether most of the time of the named lines is that of torch's layers, or of a backward pass."""
        return sum(line.torch_ns for line in self.named) > MOST * sum(line.ns for line in self.named)

    @property
    def blocked(self) -> tuple[CallSite, ...]:
        """The named lines in which the training thread is blocked for most of their time."""
        return tuple(line for line in self.named if line.blocked_ns > MOST * line.ns)

    @property
    def described_waits(self) -> str:
        """The clause that says in which named lines the training thread waits; empty where it computes."""
        if not self.blocked:
            return ""
        lines = "there" if self.blocked == self.named else f"in {' and '.join(line.location for line in self.blocked)}"
        return f"; the training thread waits {lines}: for another thread or a process, a file, the network or a sleep"

    @property
    def described(self) -> str:
        """The first named line with the calls inside or around it."""
        return _describe(self.named[0])

    def describe(self, share: float) -> str:
        """Return the lines as text, each with its part of ``share``, a fraction of the step or of the whole time."""
        few = f" ({self.samples} samples)" if self.samples < 2 * MIN_SAMPLES else ""
        return ", ".join(f"{_describe(line)}, {format_percent(self.share(line) * share)}{few}" for line in self.named)

    def describe_places(self) -> str:
        """Return the named lines alone, each with its function: where passes begin, or calls are made."""
        return ", ".join(f"{line.location} in {line.function}" for line in self.named)

    def evidence(self) -> dict[str, Any]:
        """Return the lines as the evidence of a finding."""
        lines = [
            {"where": line.location, "call": line.call, "function": line.function, "share": round(self.share(line), 3)}
            for line in self.lines
        ]
        return {"samples": self.samples, "lines": lines}


def describe_line(line: CallSite) -> str:
    """Return the line and its function, or the function that it calls: ``train.py:88 save_image``."""
    return f"{line.location} {_called(line) or line.function}"


def _describe(line: CallSite) -> str:
    """Return the line with its source, and the calls inside or around it."""
    return f"{describe_line(line)}{f' (`{line.source}`)' if line.source else ''}{line.path}"


def _called(line: CallSite) -> str:
    """Return the function that a line calls; empty for a part of the line, as a lambda, and for ``__init__``."""
    return "" if line.call.startswith(("<", "__")) else line.call


Stacks = list[tuple[int, tuple[Site, ...]]]
"""The time of samples, and their lines, innermost first."""


def _path(line: CallSite, stacks: Stacks, common: set[tuple[str, int]]) -> str:
    """Return the calls inside a line where the time goes, or its function, unless that is the loop, and the last place.

    Without ``common`` lines, those of the loop, it is the innermost line, and the line that calls its function.
    """
    users = max(stacks, key=lambda one: one[0])[1]
    if common:
        loops = {user.function for user in users if user[:2] in common}
        own = "" if not _called(line) or line.function in loops or line.function.startswith("<") else line.function
        within, (inside, both) = f" in {own}" if own else "", _inside(line, stacks)
        if not inside:
            return f"{within}, at {both}" if both else within
        first, last = inside[0], inside[-1]
        place, deepest = _quoted(first), ""
        if len(inside) > 1:
            place, deepest = format_place(*first[:2]), f", at {_quoted(last)}"
        deepest += f", there {both}" if both else ""
        calls = "".join(f" → {user.function}" for user in inside[1:][-2:])
        if first.function == _called(line):  # the place is in the function that the line calls
            return f"{'' if calls else within}, at {place}{calls}{deepest}"
        return f" → {first.function} ({place}){calls or within}{deepest}"
    at = next((at for at, user in enumerate(users) if user[:2] == (line.file, line.line)), None)
    callers = users[0 if at is None else at + 1 :]
    if not callers:
        return ""
    within = f" in {line.function}" if _called(line) and not line.function.startswith("<") else ""
    return f"{within}, called in {callers[0].function} ({format_place(*callers[0][:2])})"


def _quoted(site: Site) -> str:
    """Return a place with its line of source."""
    source = call_site(site, 0, 0).source
    return f"{format_place(*site[:2])}{f' `{source}`' if source else ''}"


def _inside(line: CallSite, stacks: Stacks) -> tuple[list[Site], str]:
    """Return the lines inside of a line, the outermost first, as far as one of them has most of the line's time.

    Where two of those inside of the last one have it together, they are returned as text.
    """
    ways = []
    for ns, users in stacks:
        at = next((at for at, user in enumerate(users) if user[:2] == (line.file, line.line)), 0)
        ways.append((ns, [user for user in reversed(users[:at]) if not user.function.startswith("<")]))
    found, whole_ns = list[Site](), sum(ns for ns, _ in ways)
    while True:
        depth, spent, sites = len(found), Counter[tuple[str, int]](), dict[tuple[str, int], Site]()
        ways = [(ns, way) for ns, way in ways if len(way) > depth]
        for ns, way in ways:
            spent[way[depth][:2]] += ns
            sites[way[depth][:2]] = way[depth]
        most = spent.most_common(2)
        if not most or most[0][1] < MOST * whole_ns:
            is_both = sum(ns for _, ns in most) >= MOST * whole_ns
            return found, " and ".join(_quoted(sites[place]) for place, _ in most) if is_both and most else ""
        ways = [(ns, way) for ns, way in ways if way[depth][:2] == most[0][0]]
        found.append(sites[most[0][0]])


class StackMonitor:
    """Add the samples up by kind of time, on the training thread."""

    def __init__(self, probe: StackProbe) -> None:
        self.probe = probe
        self._tables: dict[str, dict[Sites, list[int]]] = {}
        self._waiting: dict[int, list[tuple[int, StackSample]]] = {}
        self.later: list[StackSample] = []
        """Samples taken after the end of the last completed step."""
        self._loop_lines: set[tuple[str, int]] = set()
        """The user's lines that call the training, as far as the first passes show."""
        self._passes = 0

    def step(self, raw: RawStep) -> None:
        """Take the new samples; those of the step wait for its frame, those of a later step for that step."""
        samples = self.later + self.probe.take()
        self.later = []
        if not samples:
            return
        begun_ns, pauses, inside = raw.begun_ns, _pauses(raw), []
        for sample in samples:
            at_ns = sample.at_ns
            if sample.excluded or any(start <= at_ns < end for start, end in pauses):
                self._add(EXCLUDED, sample)
            elif at_ns >= raw.ended_ns:
                self.later.append(sample)
            elif begun_ns <= at_ns and not raw.warmup:
                before_ns = sum(end - start for start, end in pauses if end <= at_ns)
                inside.append((at_ns - begun_ns - before_ns, sample))
        if inside:
            self._waiting.setdefault(raw.step, []).extend(inside)
            if len(self._waiting) > KEPT_KINDS:
                del self._waiting[next(iter(self._waiting))]

    def frames(self, run: FrameRun) -> None:
        """Add the samples of these steps by the span that each fell into; warm-up has none."""
        self._look_around()
        if run.warmup:
            return
        self.probe.enable()
        for frame in run.frames if self._waiting else ():
            inside = self._waiting.pop(frame.step, None)
            if inside is not None:
                self._place(frame, inside)

    def _look_around(self) -> None:
        """Remember the lines above this pass: it runs in the training loop, and excluded time beside it."""
        if self._passes < LOOKS:
            self._passes += 1
            self._loop_lines |= lines_around()

    def _place(self, frame: StepFrame, inside: list[tuple[int, StackSample]]) -> None:
        """Add the samples of a step by the innermost span around each."""
        layout, starts_ns = frame.layout, frame.start_ns
        ends_ns, on_thread = starts_ns + frame.host_ns, np.asarray(layout.lanes) == TRAINING_LANE
        for at_ns, sample in inside:
            covering = np.flatnonzero(on_thread & (starts_ns <= at_ns) & (at_ns < ends_ns)).tolist()
            at = covering[-1] if covering else None
            self._add(UNATTRIBUTED if at is None else f"{layout.phases[at]} {layout.names[at]}", sample)
            called = next((one for one in covering if layout.fqns[one] is not None), None)
            if called is not None and layout.phases[called] is Phase.FORWARD:
                callers = _callers(sample.users)
                sample = sample._replace(users=callers, inner=callers[0] if callers else None)
                self._add(f"{CALLS} {layout.names[called]}", sample)

    def _add(self, kind: str, sample: StackSample) -> None:
        if kind not in self._tables and len(self._tables) >= KEPT_KINDS:
            return
        table = self._tables.setdefault(kind, {})
        key = sample.users, sample.inner
        sums = table.setdefault(key if key in table or len(table) < KEPT_KINDS else ((), None), [0, 0, 0])
        sums[0] += 1
        sums[1] += sample.weight_ns
        sums[2] += sample.blocked * sample.weight_ns

    def statistics(self) -> dict[str, StackTable]:
        """Return the table of each kind of time."""
        return {kind: self._table(kind) for kind in self._tables}

    def _table(self, kind: str) -> StackTable:
        """Add the samples up by the outermost line of each that does not call the rest of the step as well."""
        if kind.startswith(CALLS):
            common = self._lines_in([kind], NEARLY_ALL)
        else:  # the loop fetches every batch
            common = set() if kind.startswith(Phase.DATA) else self._common_lines(kind)
            common |= self._around_backward(kind) if kind.startswith(Phase.BACKWARD) else set()
        shared = set[tuple[str, int]]()
        if kind == EXCLUDED:  # the line around all its parts, unless training runs there as well
            common |= self._loop_lines
            shared = self._lines_in([kind], NEARLY_ALL) - common
        groups: dict[tuple[str, int], dict[Site, list[int]]] = {}
        stacks: dict[tuple[str, int], Stacks] = {}
        for (users, inner), (count, ns, blocked_ns) in self._tables[kind].items():
            # A lambda has no name: the line in it that calls something says more than the line that calls it.
            own = (user for user in reversed(users) if user[:2] not in common and user.call != "<lambda>")
            site = next((user for user in users if user[:2] in shared), next(own, inner) if common else inner)
            if site is not None:
                sums = groups.setdefault(site[:2], {}).setdefault(site, [0, 0, 0, 0])
                by_torch = inner is not None and inner.call in TORCH_WORK
                sums[:] = map(add, sums, (count, ns, by_torch * ns, blocked_ns))
                stacks.setdefault(site[:2], []).append((ns, users))
        most = sorted(groups.values(), key=lambda group: -sum(sums[1] for sums in group.values()))[:KEPT_LINES]
        lines = []
        for group in most:
            longest = max(group, key=lambda site: (group[site][1], site))
            count, ns, torch_ns, blocked_ns = map(sum, zip(*group.values(), strict=True))
            line = call_site(longest, count, ns)
            around = set() if longest[:2] in shared else common
            path = _path(line, stacks[longest[:2]], around)
            lines.append(replace(line, path=path, torch_ns=torch_ns, blocked_ns=blocked_ns))
        samples, ns, _ = map(sum, zip(*self._tables[kind].values(), strict=True))
        return StackTable(samples, ns, tuple(lines), self._innermost(kind))

    def _innermost(self, kind: str) -> tuple[CallSite, ...]:
        spent: dict[tuple[str, int], list[Any]] = {}
        for (users, _inner), (count, ns, _blocked_ns) in self._tables[kind].items():
            if users:
                sums = spent.setdefault(users[0][:2], [users[0], 0, 0])
                sums[1], sums[2] = sums[1] + count, sums[2] + ns
        return tuple(call_site(*one) for one in sorted(spent.values(), key=lambda one: -one[2])[:KEPT_LINES])

    def _around_backward(self, kind: str) -> set[tuple[str, int]]:
        """Return the user's lines that begin a backward pass, and those around them: code in the pass is inside."""
        found = set[tuple[str, int]]()
        for users, _inner in self._tables[kind]:
            begin = next((at for at, user in enumerate(users) if user.call == BACKWARD), len(users))
            found.update(user[:2] for user in users[begin:])
        return found

    def _common_lines(self, kind: str) -> set[tuple[str, int]]:
        """Return the user's lines that are on the stack in a good part of all other kinds of time.

        Those of a module in forward are compared with other modules' forwards: the lines of both call the modules.
        """
        like = f"{Phase.FORWARD} " if kind.startswith(f"{Phase.FORWARD} ") else ""
        apart = {kind, EXCLUDED} | {other for other in self._tables if other.startswith(CALLS)}
        others = (other for other in self._tables if other not in apart and other.startswith(like))
        return self._lines_in(others, SHARED_LINE)

    def _lines_in(self, kinds: Iterable[str], share: float) -> set[tuple[str, int]]:
        """Return the user's lines that are on the stack in this share of these kinds of time."""
        spent: Counter[tuple[str, int]] = Counter()
        total = 0
        for kind in kinds:
            for (users, _inner), (_count, ns, _blocked_ns) in self._tables[kind].items():
                total += ns
                for line in {user[:2] for user in users}:
                    spent[line] += ns
        return {line for line, ns in spent.items() if ns >= share * total}


def _callers(users: tuple[Site, ...]) -> tuple[Site, ...]:
    """Return the lines that lead to the call of the outermost module, the call first, without those inside of it."""
    call = next((at for at in reversed(range(len(users))) if users[at].call == "forward"), 0)
    return users[call:]


def _pauses(raw: RawStep) -> list[tuple[int, int]]:
    """Return the stretches of a step that were excluded, in host time."""
    found, begun_ns, batch, clock = [], None, raw.mark_batch, raw.clock
    if PAUSE not in {code & KIND_MASK for code in batch.codes}:
        return []
    for code, reading in zip(batch.codes, batch.readings, strict=True):
        kind = code & KIND_MASK
        if kind == PAUSE and begun_ns is None:
            begun_ns = clock.host_ns(reading)
        elif kind == UNPAUSE and begun_ns is not None:
            found.append((begun_ns, clock.host_ns(reading)))
            begun_ns = None
    return found
