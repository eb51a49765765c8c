"""``Evidence``: everything a rule may read, built alike from a live run and from a saved one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Final, NamedTuple

from ..base.frame import TRAINING_LANE, FrameRun, Layout, Nanoseconds, Phase, StepFrame
from ..base.stats.intervals import Interval, median_from_quantiles
from ..base.summary import Row, Summary
from ..capture.hooks.sizes import ModuleSize
from ._bounds import MANY_OPERATORS, MIN_SHARE, SEVERAL
from ._calls import CallSite
from ._facts import RunFacts
from ._rare import PhaseSeries

GRADIENT_HOOKS: Final = (
    "look at the hooks on the gradients of its parameters (register_hook): they run in its backward, in each step"
)
"""The advice on a module of which ``ModuleSize.has_hooks``."""
SPARSE: Final = (
    "sparse=True in the layer gives gradients of the rows read alone, for torch.optim.SGD, Adagrad or SparseAdam"
)
"""The advice on tables that are ``sparsely_read``."""
MEMORY_KINDS: Final = ("allocated_bytes", "rss_bytes")
"""Readings that show growth, the better one first: an allocator counts tensors, the resident set everything."""
SHARED_NAME: Final = re.compile(r"\*|\d+-\d+|\d+,\d+\.\.\d+")
"""The part of a name that stands for several modules: ``layers.*``, ``0-3``, ``2,4..18``."""
NUMBER: Final = re.compile(rf"{SHARED_NAME.pattern}|\d+")
"""The part in which the names of modules of one structure differ."""
MIN_GROWTH_BYTES: Final = 16 * 2**20
"""Growth of memory from which on it may be a leak: the C library takes and frees arenas of megabytes."""
MIN_GROWTH: Final = 0.05
"""The same over the first reading: caches and fragments grow with the size of the process."""
KEPT_LONGEST: Final = 8
"""Longest steps kept: enough to recognise a recurring cause."""


class LongStep(NamedTuple):
    """One of the longest steps of a run, with the time of every span of its layout."""

    step: int
    step_ns: int
    layout: Layout
    total_ns: Nanoseconds


class RowWork(NamedTuple):
    """The work of a row in a step outside the rows in it: operations, bytes moved, operators, Python between them."""

    flops: float
    moved: float
    operators: float
    python: float


NO_WORK: Final = RowWork(0.0, 0.0, 0.0, 0.0)


def is_within(row: Row, fqn: str) -> bool:
    """Return whether all modules of a row lie in this one: of a name that several share, the part before is theirs."""
    if row.fqn is None or not fqn:
        return row.fqn is not None  # the model itself holds all of them
    parts = row.name.split("/")
    shared = next((at for at, part in enumerate(parts) if SHARED_NAME.search(part)), len(parts))
    return f"{row.fqn}.".startswith(f"{fqn}.") and fqn.count(".") < shared


class LineTime(NamedTuple):
    """The time that a line has of a row's own time, in a mean step, as the samples in it show."""

    row: Row
    line: CallSite
    ns: float


class RowCost(NamedTuple):
    """The own time of a row in a mean step, and the times that explain it; ``work`` is None where it is not counted."""

    row: Row
    ns: float
    members: int = 1
    """The modules that share the row."""
    arithmetic_ns: float = 0.0
    launch_ns: float = 0.0
    operators: float = 0.0
    """Those that are launched; without ``work`` the nodes of autograd that its calls make, which are fewer."""
    is_code: bool = True
    """Whether code of the program runs in it, or calls it in a loop: torch's ``nn.GRU`` has no loop in Python."""
    beyond_backward_ns: float = 0.0
    """The own time of a forward by which it takes longer than its backward, which has as much arithmetic at least."""
    work: RowWork | None = None

    @property
    def explained_ns(self) -> float:
        """The time that the work explains."""
        return self.arithmetic_ns + self.launch_ns

    @property
    def pieces_ns(self) -> float:
        """The time of launches, of modules of so many operators each that they can take most of it.

        Where the arithmetic may take as long, the time is shared between the two.
        """
        is_loop = self.is_code and self.operators >= MANY_OPERATORS * self.members
        is_launched = is_loop and 2 * self.launch_ns >= self.ns
        return self.ns * self.launch_ns / self.explained_ns if is_launched else 0.0

    @property
    def beyond_work_ns(self) -> float:
        """The time beyond its work, of a row that takes several times as long."""
        is_beyond = self.work is not None and self.ns > SEVERAL * self.explained_ns
        return self.ns - self.explained_ns if is_beyond else 0.0

    @property
    def python_ns(self) -> float:
        """The time of the program's Python between the operators; in one of torch's own a pause was measured."""
        return min(self.work.python, self.ns) if self.work is not None and self.is_code else 0.0

    @property
    def unexplained_ns(self) -> float:
        """The time that neither the work nor the backward explains: launching the operators of a loop is no work."""
        return max(self.beyond_work_ns, self.beyond_backward_ns, self.pieces_ns, self.python_ns)


@dataclass(frozen=True)
class Evidence:
    """A run as the rules see it. ``memory`` has (step, bytes): the smallest reading in each stretch of the run."""

    summary: Summary
    facts: RunFacts = field(default_factory=RunFacts)
    longest: tuple[LongStep, ...] = ()
    memory: tuple[tuple[int, int], ...] = ()
    memory_kind: str | None = None
    series: PhaseSeries = field(default_factory=PhaseSeries)
    memory_peaks: tuple[int, ...] = ()
    """The highest level of the process up to each reading of ``memory``, in bytes; empty where it was not read."""
    costs: Mapping[tuple[str, Phase], RowCost] = field(default_factory=dict)
    """The costs of the modules' rows by name and phase, as the ledger has them."""

    @cached_property
    def rows(self) -> dict[Phase, list[Row]]:
        """The training thread's rows by phase, longest first."""
        by_phase: dict[Phase, list[Row]] = {}
        for row in self.summary.rows:
            if row.lane == TRAINING_LANE:
                by_phase.setdefault(row.phase, []).append(row)
        return by_phase

    @cached_property
    def step_time(self) -> Interval:
        """The median step in nanoseconds."""
        run = self.summary
        return median_from_quantiles(run.step_p50_ns, run.step_p95_ns, run.steps, run.step_min_ns, run.step_max_ns)

    def row_time(self, row: Row) -> Interval:
        """Return a row's nanoseconds in each step of the run, also for a row that occurs in some steps only."""
        part = row.steps / max(self.summary.steps, 1)
        low, middle, high = median_from_quantiles(row.p50_ns, row.p95_ns, row.steps, row.min_ns, row.max_ns)
        return Interval(low * part, middle * part, high * part)

    def lines_in_forward(self) -> Iterator[LineTime]:
        """Yield the innermost lines with most of the time in the forwards of the modules.

        None where the times are those of a device: lines are sampled on the host.
        """
        for row in self.rows.get(Phase.FORWARD, []) if self.summary.clock == "host" else ():
            table = self.facts.stacks.get(f"{Phase.FORWARD} {row.name}")
            if row.fqn is not None and table is not None:
                for line in table.innermost:
                    yield LineTime(row, line, table.share(line) * row.self_ns / self.summary.steps)

    def size(self, fqn: str | None) -> ModuleSize | None:
        """Return the class and the sizes of a recorded module; None where no call of it was seen."""
        return None if fqn is None else self.facts.sizes.get(fqn)

    @cached_property
    def _alike(self) -> Counter[str]:
        """How many recorded modules have names that differ only in their numbers."""
        return Counter(NUMBER.sub("*", fqn) for fqn in self.facts.sizes)

    def members(self, row: Row) -> int:
        """Return how many modules share a row, ``layers.*`` or ``0-5``; 1 for a row of its own.

        They are as many as the calls of a step, but where each is called several times.
        """
        if not SHARED_NAME.search(row.name):
            return 1
        calls = max(round(row.calls / max(row.steps, 1)), 1)
        return min(calls, self._alike[NUMBER.sub("*", row.fqn or "")] or calls)

    def sparsely_read(self) -> dict[str, int]:
        """Return the bytes of the embeddings of which a step reads few rows into a dense gradient, by name.

        A product with as many bytes of parameters has the table as its weight, and reads all of it.
        """
        if any(one.has_sparse for one in self.facts.optimizers or ()):
            return {}
        fqns = {row.name: row.fqn for row in self.rows.get(Phase.FORWARD, [])}
        found, products = dict[str, int](), set[int]()
        for row in self.summary.memory_table[1:]:
            size, held = self.size(fqns.get(row.name or "")), row.parameter_bytes or 0
            if row.name is None or size is None:
                continue
            if size.kind.startswith("torch.nn.modules.linear."):
                products.add(held)
            elif size.kind.startswith("torch.nn.modules.sparse.") and 0 < size.passed_bytes <= MIN_SHARE * held:
                found[row.name] = held
        return {name: held for name, held in found.items() if held not in products}

    def whole_work(self, name: str, phases: Iterable[Phase]) -> RowWork | None:
        """Return the work of a name, or of the slowest module of a row, with all inside; None where not counted."""
        counted = self.summary.work
        found = () if counted is None or counted.reason is not None else (*counted.rows, *counted.members)
        work = next((one for one in found if one.name == name), None)
        if work is None:
            return None
        counts = (getattr(work, field) for field in RowWork._fields)
        return RowWork(*(sum(by.get(one, 0) for one in phases) for by in counts))

    def self_time(self, rows: list[Row]) -> Interval:
        """Return the sum of the rows' self times in each step, in nanoseconds."""
        low = middle = high = 0.0
        for row in rows:
            time, part = self.row_time(row), row.self_ns / max(row.total_ns, 1)
            low, middle, high = low + part * time.low, middle + part * time.middle, high + part * time.high
        return Interval(low, middle, high)


def enough_growth(first_bytes: int) -> float:
    """Return the growth of memory from which on it may be a leak."""
    return max(MIN_GROWTH_BYTES, MIN_GROWTH * first_bytes)


class EvidenceCollector:
    """Collect the longest steps and memory readings from frames, in constant memory."""

    def __init__(self) -> None:
        self._longest: list[LongStep] = []
        self._memory_kind: str | None = None
        self._memory: list[tuple[int, int, int | None]] = []
        """Step, level and the process's highest level so far."""
        self._stretch = 1
        """Number of readings in a stretch."""
        self._in_stretch = 0
        self._series = PhaseSeries()

    @property
    def steps(self) -> int:
        """The number of recorded steps so far, warm-up excluded."""
        return self._series.steps

    def add(self, frame: StepFrame) -> None:
        """Add a frame."""
        self.add_run(FrameRun.of(frame))

    def add_run(self, run: FrameRun) -> None:
        """Add the frames of a run; warm-up is ignored."""
        if run.warmup:
            return
        self._series.add(run.steps, run.step_ns, run.layout, run.total_ns)
        for at, step in enumerate(run.steps):
            step_ns, memory = run.step_ns[at], run.memory[at]
            if memory:
                self._add_memory(step, memory)
            if len(self._longest) < KEPT_LONGEST or step_ns > self._longest[-1].step_ns:
                # A view of the times would keep the whole matrix alive.
                self._longest.append(LongStep(step, step_ns, run.layout, run.total_ns[at].copy()))
                self._longest.sort(key=attrgetter("step_ns"), reverse=True)
                del self._longest[KEPT_LONGEST:]

    def _add_memory(self, step: int, memory: Mapping[str, int]) -> None:
        if self._memory_kind is None:
            self._memory_kind = next((kind for kind in MEMORY_KINDS if kind in memory), None)
        if self._memory_kind is None or self._memory_kind not in memory:
            return
        # The resident set also counts freed memory: its highest level since the process began goes with it.
        peak = memory.get("rss_peak_bytes") if self._memory_kind == "rss_bytes" else None
        reading = (step, memory[self._memory_kind], peak)
        if self._in_stretch and reading[1] < self._memory[-1][1]:
            self._memory[-1] = reading
        elif not self._in_stretch:
            self._memory.append(reading)
        self._in_stretch = (self._in_stretch + 1) % self._stretch
        # Readings kept, each the smallest of a stretch of the run. At this number every two stretches are merged into
        # one.
        if len(self._memory) == 64 and not self._in_stretch:
            pairs = zip(self._memory[::2], self._memory[1::2], strict=True)
            self._memory = [min(pair, key=lambda one: one[1]) for pair in pairs]
            self._stretch *= 2

    def longest(self) -> tuple[LongStep, ...]:
        """Return the longest steps, the longest first."""
        return tuple(self._longest)

    def evidence(self, summary: Summary, facts: RunFacts) -> Evidence:
        """Return the evidence for the rules."""
        readings = tuple((step, level) for step, level, _ in self._memory)
        peaks = tuple(peak for _, _, peak in self._memory if peak is not None)
        known = peaks if len(peaks) == len(readings) else ()
        return Evidence(summary, facts, self.longest(), readings, self._memory_kind, self._series, known)
