"""The statistics of a run: ``Summary`` with its ``Row`` and ``Finding``, as frozen data that goes to and from JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from .frame import TRAINING_LANE, Phase
from .units import NS_PER_S

if TYPE_CHECKING:
    from pydantic import TypeAdapter

ClockName = Literal["host", "device"]
Severity = Literal["info", "note", "warning", "critical"]
Stopped = Literal["leaf", "small", "budget", "hidden"]
"""Reason for which the modules inside a row have no rows: there are none, they are a small part of the step, recording
them would cost too much, hooks do not fire there."""

OTHER_TARGETS: Final = "steps recorded with other targets, before or after the hot path was opened"
"""The key of ``Summary.skipped`` for steps of another set of targets than the one whose rows the summary has."""
NEGLIGIBLE_BIAS: Final = 0.1
"""The difference between recorded steps and all, as a fraction, up to which reports do not mention it."""

TRAINING: Final = "training"
"""The stage of the steps."""
VALIDATION: Final = "validation"
ROLLOUT: Final = "rollout or validation"
"""The stages that are recognised by their forwards; the first one is a name, too."""


@dataclass(frozen=True, slots=True)
class SlowestMember:
    """The slowest module of a row that several modules of one structure share, all of them called equally often.

    ``times`` is its time in a typical step (the geometric mean) over the median of the ``members``. ``excess_ns`` is
    its mean time in a step beyond the median one.
    """

    fqn: str
    members: int
    times: float
    excess_ns: int


@dataclass(frozen=True, slots=True)
class Row:
    """Statistics of one name in one phase. ``mean_ns`` to ``p95_ns`` are per recorded step in which the row occurred.

    ``calls`` are those of all recorded steps, ``steps`` the recorded steps with one or more of them.
    ``total_ns`` counts nested spans of the same row once; ``self_ns`` is the time that no child span covers. ``share``
    is ``total_ns`` over the time of all recorded steps: rows nested in one another overlap, but a row and its siblings
    never exceed their parent. Quantiles are within 1 % (logarithmic bins). ``host_bound`` is the share of device time
    in which the device waited for the host; None without a device. ``memory_growth_bytes`` is the largest growth of
    memory over the row's calls of one step. The largest level known within a call, warm-up included, is
    ``memory_peak_bytes``. ``stopped`` is the reason for which the modules inside have no
    rows, see ``Stopped``. ``slowest`` is the slowest of several modules that share the row. ``communicated_bytes`` is
    the size of the row's collectives in a mean recorded step, each by its input or its result, whichever is larger.
    """

    name: str
    fqn: str | None
    phase: Phase
    calls: int
    steps: int
    total_ns: int
    self_ns: int
    mean_ns: int
    min_ns: int
    max_ns: int
    p50_ns: int
    p95_ns: int
    share: float
    parent: str | None = None
    lane: int = 0
    memory_growth_bytes: int | None = None
    memory_peak_bytes: int | None = None
    host_bound: float | None = None
    stopped: Stopped | None = None
    slowest: SlowestMember | None = None
    communicated_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """Memory of one name in bytes (``name`` None: the whole run); None is not measured, see ``Summary.unmeasured``.

    Parameters, buffers, gradients and optimizer state are counted by the storages of their tensors: a shared storage
    once, the local one of a shard. ``activation_bytes`` is the largest growth of the device's allocator over the name's
    forward calls of one step. ``peak_bytes`` of a name is a lower bound. A name includes the modules in it, so rows
    nested in one another overlap.
    """

    name: str | None
    parameter_bytes: int | None = None
    buffer_bytes: int | None = None
    gradient_bytes: int | None = None
    state_bytes: int | None = None
    activation_bytes: int | None = None
    peak_bytes: int | None = None

    @property
    def held_bytes(self) -> int:
        """The known bytes that do not depend on the batch: all but the activations."""
        known = (self.parameter_bytes, self.buffer_bytes, self.gradient_bytes, self.state_bytes)
        return sum(count for count in known if count is not None)


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule's verdict, or its abstention (severity ``info``, the missing signal in ``evidence``).

    The severity ``note`` names a cost that is as large as its work: nothing is wrong with it, and nothing is promised.
    ``why`` states the cause with its figures, ``next`` the remedy, both as sentences.
    """

    rule: str
    severity: Severity
    why: str
    next: str
    name: str | None = None
    """The row, the span or the line of the program that it is about; None where it is the phase or the whole step."""
    phase: Phase | None = None
    """The phase whose time it is; None where it is that of several."""
    rank: int | None = None
    """The rank that it is about; None where it is each."""
    gain_ns: int | None = None
    """The most that a mean step could be shorter, in nanoseconds; None where time is not the gain, or not known."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """The figures that it follows from, by name; those of times end in ``_ns``, of sizes in ``_bytes``."""


State = Literal["arithmetic", "choice", "waiting", "unexplained", "uncounted"]
"""Whether the work of an owner explains its time, it is spent by choice, it is a wait, or nothing explains it.
``uncounted``: its work was not counted."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """Time of one owner in a mean step: a row's own time, or the part of it with another ``state``.

    The time of a step in no span has no name, and excluded time and autoprof's own work have no phase. ``lines`` names
    the lines of the program that certainly take a good part of it, with their shares of it; empty where none does.
    """

    name: str | None
    phase: Phase | None
    state: State
    ns: int
    lines: str = ""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The estimated figures of the run with one thing changed; None where this run has no input for a figure.

    ``time_ratio`` is the time for the same samples over that of the run as it is; ``memory_share`` is a fraction of the
    device's memory.
    """

    change: str
    step_ns: int
    throughput: float | None
    memory_bytes: int | None
    memory_change_bytes: int | None
    assumed: str
    time_ratio: float | None = None
    memory_share: float | None = None
    remaining_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a program that alternates with the training: validation, rollouts, ``torch.save``, ``session.stage``.

    Its host time belongs to no step, recorded or not. ``steps`` is the number of steps in or after which it
    happened: the files of one checkpoint are several calls after one step, and a check before the first step is in
    none. ``before_ns`` is the part before the first step: a rollout comes before each round of training, validation
    after it. ``units`` has the samples, tokens and frames that were logged inside.
    """

    name: str
    calls: int
    total_ns: int
    steps: int
    before_ns: int = 0
    units: Mapping[str, float] = field(default_factory=dict)
    chosen: bool = False
    """Whether the program names it as a part of its work, by ``session.stage``."""

    @property
    def rate(self) -> tuple[str, float] | None:
        """The unit that was logged inside, and how many of it a second; None without one."""
        for unit, amount in self.units.items():
            return unit, amount * NS_PER_S / max(self.total_ns, 1)
        return None

    @property
    def kind(self) -> str:
        """The name for reports. Validation that takes turns with training and came first may be a rollout."""
        # Times after which it is known that evaluation and training take turns.
        if self.name != VALIDATION or self.steps < 3:
            return self.name
        each_ns = (self.total_ns - self.before_ns) / self.steps
        # Time before the first step, as a fraction of the mean time between steps: a sanity check is shorter.
        return ROLLOUT if self.before_ns >= 0.5 * each_ns else self.name


@dataclass(frozen=True, slots=True)
class MetricStats:
    """Mean, extremes and last value of one metric of a device or the host, read about once a second."""

    mean: float
    low: float
    high: float
    last: float
    readings: int


@dataclass(frozen=True, slots=True)
class Progress:
    """Length of the rest of the run, by the mean of all steps; None is unknown."""

    source: str
    """Where the number of samples came from; empty where there is none."""
    total_steps: int | None = None
    remaining_steps: int | None = None
    remaining_ns: int | None = None
    no_throughput: str = ""
    """The reason why there is no throughput, and what would give one; empty where there is one, or nothing is known."""


@dataclass(frozen=True, slots=True)
class WorkRow:
    """Floating-point operations of all modules of one name in one step, modules inside included, by phase.

    The rates are over the time of those phases; None where one of them was not timed. ``mfu`` and ``hfu`` are model
    and hardware FLOP utilization: fractions of the device's peak.
    """

    name: str
    flops: Mapping[str, int]
    flops_per_s: float | None = None
    mfu: float | None = None
    hfu: float | None = None
    double_flops: int = 0
    """Those in float64."""
    moved: Mapping[str, int] = field(default_factory=dict)
    """Bytes that the operators without FLOPs read and write, by phase."""
    operators: Mapping[str, int] = field(default_factory=dict)
    """Tensors that operators compute, by phase; a grouped convolution computes one for each group."""
    python: Mapping[str, int] = field(default_factory=dict)
    """Processor time of Python between the operators, by phase, in nanoseconds, where that is long; of a forward."""


@dataclass(frozen=True, slots=True)
class WorkKind:
    """Floating-point operations of one arithmetic in a step: the operands' type, and ``matmul`` or ``conv``.

    ``peak_ns`` is their time at the device's peak, ``half_ns`` the same in 16 bits; None without a peak.
    """

    dtype: str
    family: str
    flops: int
    peak_ns: float | None = None
    half_ns: float | None = None


@dataclass(frozen=True, slots=True)
class UnfusedAttention:
    """Attention computed as a product, a softmax and a product: its forward operations in a step, in how many modules.

    ``by_sdpa``: it is the math kernel of ``scaled_dot_product_attention``, not the model's own code.
    """

    flops: int
    modules: int
    first: str
    by_sdpa: bool


POSTPONED: Final = "FLOPs are counted when the run is long enough for the budget, or at its end if that is quick"
"""The reason of work that is still to be counted."""
HIGHER_ORDER: Final = "the step computes gradients of gradients"
"""The reason for which the work of a step is not counted, where a backward pass records a graph of its own."""


@dataclass(frozen=True, slots=True)
class Work:
    """Floating-point operations of one step, by phase; without a figure there is a ``reason``.

    With a ``reason``, ``rows`` has the forward alone, if that was counted to its end.
    ``flops_per_s`` is forward and backward over the step's time. ``no_peak`` is the reason why there is no MFU and HFU.
    """

    flops: Mapping[str, int] = field(default_factory=dict)
    flops_per_s: float | None = None
    mfu: float | None = None
    hfu: float | None = None
    reason: str | None = None
    no_peak: str | None = None
    peak: str | None = None
    """The device whose peak it is, by its exact name and form."""
    notes: tuple[str, ...] = ()
    rows: tuple[WorkRow, ...] = ()
    members: tuple[WorkRow, ...] = ()
    """The slowest module of each row that several share, by its fqn, without rates."""
    kinds: tuple[WorkKind, ...] = ()
    attention: tuple[UnfusedAttention, ...] = ()
    alike: bool = False
    """Whether all calls of the model in a step are given tensors of the same shapes."""
    without_graph: tuple[tuple[str, int], ...] = ()
    """File and number of the lines in a forward with gradients whose operators make no graph."""
    one_hot: tuple[tuple[str, str, int], ...] = ()
    """The fqn of the module, the file and the number of the lines that multiply one-hot rows with a matrix."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A run's statistics over its recorded steps, warm-up excluded.

    ``phases`` holds nanoseconds over all recorded steps and sums to ``total_step_ns`` exactly. ``throughput`` is
    ``throughput_unit`` per second, logged or recognised (``progress.source``). ``overhead`` is autoprof's own processor
    time as a fraction of the time of all steps, recorded or not. ``conditions`` are circumstances of the machine that
    make times uncertain, and no causes. ``ledger`` has the owners of the mean step. ``dropped`` and ``skipped`` map a
    reason to a count. Reports show a span shorter than ``clock_limit_ns``, which the clock cannot resolve, as less than
    that. ``memory_table`` has the whole run first, then the names; ``unmeasured`` has the reasons for its empty
    columns. ``memory`` has the last reading of each kind. ``micro_steps`` is the number of forwards with a backward
    before one optimizer step, in the mean; None without a backward pass. ``stages`` are those beside the training.
    ``loader`` has ``workers``, ``fetches`` and ``unready``, the fetches that found no batch ready, and ``starts`` and
    ``start_ns`` if workers were started again; empty where that is unknown. ``unsampled_ns`` is the time of all
    unsampled steps. ``run_steps`` are all steps after the first warm-up, recorded or not, and ``run_ns`` is their time
    with autoprof's own work between them; both are the device's time where ``clock`` is. ``start_ns`` and ``end_ns``
    are processor time of opening and closing the session; None while it is open.
    """

    _repr_html_: ClassVar[Callable[[Summary], str]]
    """The short report as HTML, which a notebook shows; set by ``reports``."""

    clock: ClockName = "host"
    steps: int = 0
    warmup_steps: int = 0
    unsampled_steps: int = 0
    total_step_ns: int = 0
    step_mean_ns: int = 0
    step_min_ns: int = 0
    step_max_ns: int = 0
    step_p50_ns: int = 0
    step_p95_ns: int = 0
    phases: Mapping[Phase, int] = field(default_factory=lambda: {Phase.OTHER: 0})
    rows: tuple[Row, ...] = ()
    overhead: float = 0.0
    throughput: float | None = None
    scalars: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    conditions: tuple[str, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    clock_limit_ns: int = 0
    what_if: tuple[WhatIf, ...] = ()
    memory_table: tuple[MemoryRow, ...] = ()
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    micro_steps: int | None = None
    stages: tuple[Stage, ...] = ()
    loader: Mapping[str, int] = field(default_factory=dict)
    throughput_unit: str = "samples"
    progress: Progress | None = None
    metrics: Mapping[str, MetricStats] = field(default_factory=dict)
    work: Work | None = None
    unsampled_ns: int = 0
    run_steps: int = 0
    run_ns: int = 0
    start_ns: int | None = None
    end_ns: int | None = None

    @property
    def all_steps(self) -> int:
        """The number of steps of the run, recorded or not, with the warm-up."""
        return self.steps + self.skipped.get(OTHER_TARGETS, 0) + self.warmup_steps + self.unsampled_steps

    @property
    def run_mean_ns(self) -> float:
        """The mean time of all steps after the warm-up, recorded or not."""
        return self.run_ns / self.run_steps if self.run_steps else self.step_mean_ns

    @property
    def wall_ns(self) -> int:
        """The time of all steps and of all other stages; a step whose time was not kept counts as the mean."""
        steps_ns = self.run_ns + self.step_mean_ns * max(self.all_steps - self.run_steps, 0)
        return steps_ns + sum(one.total_ns for one in self.stages)

    @property
    def all_stages(self) -> tuple[Stage, ...]:
        """The training and the stages beside it, the longest first."""
        beside_ns = sum(one.total_ns for one in self.stages)
        training = Stage(TRAINING, self.all_steps, self.wall_ns - beside_ns, self.all_steps)
        return tuple(sorted((training, *self.stages), key=lambda one: -one.total_ns))

    @property
    def stages_share(self) -> float:
        """The part of the wall time in stages beside the training, which belongs to no step."""
        return sum(one.total_ns for one in self.stages) / max(self.wall_ns, 1)

    def check(self) -> list[str]:
        """Return each law that the statistics break as a sentence; none where they add up.

        The phases make the recorded steps, and the ledger of the training thread the mean one. No row takes longer than
        these steps, or than itself outside of the rows in it. No two findings promise the same time: together they
        gain no more than the mean step and the other stages.
        """
        broken = []
        if sum(self.phases.values()) != self.total_step_ns:
            broken.append("the phases do not make the recorded steps")
        kinds = {one.kind for one in self.stages}
        owned_ns = sum(one.ns for one in self.ledger if one.name not in kinds)
        if self.ledger and abs(owned_ns - self.step_mean_ns) > len(self.ledger):
            broken.append("the owners of the ledger do not make the mean step")
        excluded_ns = sum(one.total_ns for one in self.stages) // max(self.all_steps, 1)
        if sum(one.gain_ns or 0 for one in self.findings) > self.step_mean_ns + excluded_ns:
            broken.append("the findings gain more than a step takes")
        for row in self.rows:
            where = f"{row.name} {row.phase}"
            if not 0 <= row.self_ns <= row.total_ns:
                broken.append(f"{where}: the rows in it take longer than itself")
            if row.lane == TRAINING_LANE and row.total_ns > self.total_step_ns:
                broken.append(f"{where}: it takes longer than the recorded steps")
            if not 0 < row.steps <= self.steps:
                broken.append(f"{where}: it has steps that the run has not")
            if not row.min_ns <= row.mean_ns <= row.max_ns:
                broken.append(f"{where}: its mean is beyond its shortest or longest step")
        return broken

    @classmethod
    def empty(cls, notes: tuple[str, ...] = ()) -> Summary:
        """Return the summary of a run without a recorded step."""
        return cls(notes=notes)

    def with_note(self, note: str) -> Summary:
        """Return the summary with one more note."""
        return replace(self, notes=(*self.notes, note))

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as plain JSON types.

        JSON has neither NaN nor infinity: such a scalar is null, and ``not_finite`` holds its text.
        """
        data = asdict(self)
        not_finite = {name: repr(float(value)) for name, value in self.scalars.items() if not isfinite(value)}
        data["scalars"] = {**self.scalars, **dict.fromkeys(not_finite)}
        if not_finite:
            data["not_finite"] = not_finite
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Summary:
        """Read the output of ``to_dict``. Raises ``ValueError`` for any other data."""
        from pydantic import ValidationError  # only readers of saved runs need it

        not_finite = {name: float(text) for name, text in data.get("not_finite", {}).items()}
        try:
            return _reader().validate_python({**data, "scalars": {**data["scalars"], **not_finite}})
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


@cache
def _reader() -> TypeAdapter[Summary]:
    from pydantic import TypeAdapter

    return TypeAdapter(Summary)


def format_counts(reasons: Mapping[str, int]) -> str:
    """Phrase a map of reasons to counts for people: ``3 marks, 1 failure in module hooks``."""
    return ", ".join(f"{count} {_singular(reason) if count == 1 else reason}" for reason, count in reasons.items())


def _singular(reason: str) -> str:
    """Return a reason that begins with a plural, such as ``marks without a counterpart``, for one."""
    noun, blank, rest = reason.partition(" ")
    return noun.removesuffix("s") + blank + rest
