"""What a summary is made of: rows, findings, and what is known beside them, as frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ..frame import NamedShape, Phase

Clock = Literal["host", "device"]
Severity = Literal["info", "warning", "critical"]


@dataclass(frozen=True, slots=True)
class Row:
    """Statistics of one name in one phase. ``mean_ns`` to ``p95_ns`` are per recorded step in which the row occurred.

    ``total_ns`` counts nested spans of the same row once; ``self_ns`` is what no child span covers. ``share`` is
    ``total_ns`` over the time of all recorded steps, so that rows nested in one another overlap but a row and its
    siblings never exceed their parent. Quantiles are within 1 % (logarithmic bins). ``host_bound`` is the share of
    device time that was as long as the host took, the device's queue being empty; None without a device.
    ``memory_growth_bytes`` is the most that memory grew over the row's calls of one step; the largest level within a
    call, warm-up included, lies between ``memory_peak_bytes`` and ``memory_bound_bytes``.
    """

    name: str
    fqn: str | None
    phase: Phase
    calls: int
    steps: int
    total_ns: int
    self_ns: int
    host_total_ns: int
    mean_ns: int
    min_ns: int
    max_ns: int
    p50_ns: int
    p95_ns: int
    last_ns: int
    share: float
    parent: str | None = None
    lane: int = 0
    memory_growth_bytes: int | None = None
    memory_peak_bytes: int | None = None
    host_bound: float | None = None
    memory_bound_bytes: int | None = None
    memory_reserved_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """What a name holds in bytes (``name`` None: the whole run); None is not measured, ``Summary.unmeasured`` says why.

    Parameters, buffers, gradients and optimizer state are counted by the storages of their tensors, what is shared
    once; of a shard the local one. ``activation_bytes`` is the most that a device's allocator grew over the name's
    forward calls of one step. The peak lies between ``peak_bytes`` and ``bound_bytes``. A name includes the modules
    in it, so rows nested in one another overlap.
    """

    name: str | None
    parameter_bytes: int | None = None
    buffer_bytes: int | None = None
    gradient_bytes: int | None = None
    state_bytes: int | None = None
    activation_bytes: int | None = None
    peak_bytes: int | None = None
    bound_bytes: int | None = None
    reserved_bytes: int | None = None

    @property
    def held_bytes(self) -> int:
        """Return the bytes that are known to be there whatever the batch: all but the activations."""
        known = (self.parameter_bytes, self.buffer_bytes, self.gradient_bytes, self.state_bytes)
        return sum(count for count in known if count is not None)


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule's verdict, or its abstention (severity ``info``, the missing signal in ``evidence``)."""

    rule: str
    severity: Severity
    why: str
    next: str
    name: str | None = None
    phase: Phase | None = None
    rank: int | None = None
    gain_ns: int | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What a run would come to with one thing changed; None where this run has no input for it.

    ``assumed`` says what the arithmetic takes for granted, and where it goes beyond what was measured. ``time_ratio``
    is the time for the same samples over that of the run as it is; ``epoch_ns`` and ``left_ns`` are the times of an
    epoch and to the end, where their lengths are known. ``memory_share`` is of all the memory there is.
    """

    change: str
    step_ns: int
    throughput: float | None
    memory_bytes: int | None
    memory_change_bytes: int | None
    assumed: str
    time_ratio: float | None = None
    memory_share: float | None = None
    fits: bool | None = None
    epoch_ns: int | None = None
    left_ns: int | None = None


@dataclass(frozen=True, slots=True)
class PairedCost:
    """What recording a step costs, found by comparing steps with their unrecorded neighbours.

    ``cost`` is the median over ``pairs``, as a fraction of the unrecorded step; ``low`` and ``high`` bound its 95 %
    confidence interval. It is the cost of one recorded step; times ``recorded``, the fraction of steps that were
    recorded, it is that of the run.
    """

    cost: float
    low: float
    high: float
    pairs: int
    recorded: float

    @property
    def interval(self) -> tuple[float, float, float]:
        """The low end, the cost, and the high end."""
        return self.low, self.cost, self.high

    @property
    def of_run(self) -> tuple[float, float, float]:
        """The cost of the run, and its interval, as fractions of the time of all its steps."""
        cost, low, high = (max(share, -1.0) * self.recorded for share in (self.cost, self.low, self.high))
        return cost / (1 + cost), low / (1 + low), high / (1 + high)


@dataclass(frozen=True, slots=True)
class Shapes:
    """What modules of one name took and returned, the first of them in this step; ``fqns`` are those modules."""

    name: str
    fqns: tuple[str, ...]
    step: int
    inputs: tuple[NamedShape, ...]
    outputs: tuple[NamedShape, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the shapes as plain JSON types: ``[name, [sizes]]``."""
        return {**asdict(self), "inputs": _plain(self.inputs), "outputs": _plain(self.outputs)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Shapes:
        """Read back what ``to_dict`` wrote."""
        inputs, outputs = named(data["inputs"]), named(data["outputs"])
        return cls(data["name"], tuple(data["fqns"]), data["step"], inputs, outputs)


def _plain(shapes: tuple[NamedShape, ...]) -> list[Any]:
    return [[one.name, list(one.shape)] for one in shapes]


def named(shapes: Any) -> tuple[NamedShape, ...]:
    """Return shapes that went through JSON."""
    return tuple(NamedShape(name, tuple(shape)) for name, shape in shapes)


@dataclass(frozen=True, slots=True)
class Apart:
    """What was charged to no step: validation, ``torch.save``, pauses. Counted in all steps, recorded or not."""

    name: str
    calls: int
    total_ns: int


@dataclass(frozen=True, slots=True)
class Gauge:
    """What the readings of one thing came to, about one a second: of a device, of the host."""

    mean: float
    low: float
    high: float
    last: float
    readings: int


@dataclass(frozen=True, slots=True)
class Pace:
    """How far the run is and how fast: medians of recorded steps, pauses apart. None is not known."""

    source: str
    """Where the number of samples came from; empty where there is none."""
    epoch_steps: float | None = None
    epoch_ns: int | None = None
    total_steps: int | None = None
    left_steps: int | None = None
    left_ns: int | None = None


@dataclass(frozen=True, slots=True)
class WorkRow:
    """The work of all modules of one name in one step, modules inside included, and what became of the device's peak.

    ``flops`` is by phase. The rates are over the time of those phases; None where one of them was not timed.
    """

    name: str
    flops: Mapping[str, int]
    flops_per_s: float | None = None
    mfu: float | None = None
    hfu: float | None = None


@dataclass(frozen=True, slots=True)
class WorkKind:
    """The work of one arithmetic in a step: the operands' type, and ``matmul`` or ``conv``.

    ``peak_ns`` is what it would take at the device's peak, ``half_ns`` the same in 16 bits; None without a peak.
    """

    dtype: str
    family: str
    flops: int
    peak_ns: float | None = None
    half_ns: float | None = None


@dataclass(frozen=True, slots=True)
class WrittenOut:
    """Attention done as a product, a softmax and a product: forward operations of a step, in how many modules.

    ``by_sdpa``: it is the math kernel of ``scaled_dot_product_attention``, not the model's own code.
    """

    flops: int
    modules: int
    first: str
    by_sdpa: bool


@dataclass(frozen=True, slots=True)
class Work:
    """Floating-point operations of one step, by phase; without a figure there is a ``reason``.

    ``flops_per_s`` is forward and backward over the step's time. ``no_peak`` says why there is no MFU and HFU.
    """

    flops: Mapping[str, int] = field(default_factory=dict)
    flops_per_s: float | None = None
    mfu: float | None = None
    hfu: float | None = None
    reason: str | None = None
    no_peak: str | None = None
    peak: str | None = None
    """The device whose peak it is, by its exact name and form."""
    count_ns: int = 0
    notes: tuple[str, ...] = ()
    rows: tuple[WorkRow, ...] = ()
    kinds: tuple[WorkKind, ...] = ()
    attention: tuple[WrittenOut, ...] = ()
    sequences: int = 0
    """Sequences of shapes in a step that were told apart."""
    benchmark: bool | None = None
    """Whether cuDNN tries its algorithms out for each shape; None without cuDNN, or where it must be deterministic."""


def counts(reasons: Mapping[str, int]) -> str:
    """Phrase a map of reasons to counts for people: ``3 marks, 1 failures in module hooks``."""
    return ", ".join(f"{count} {reason}" for reason, count in reasons.items())
