"""``FlopCount``: floating-point operations by module, phase and arithmetic, or the reason why there is no figure."""

from __future__ import annotations

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple, TypeVar

from ....base.frame import Phase

MODEL_PHASES: Final = (Phase.FORWARD, Phase.BACKWARD)
"""The phases of MFU: the operations of the model itself (Chowdhery et al. 2022, PaLM, appendix B)."""
HARDWARE_PHASES: Final = (*MODEL_PHASES, Phase.RECOMPUTE)
"""The phases of HFU: all operations that the device computes."""

Family = Literal["matmul", "conv"]
T = TypeVar("T")


TOO_LONG: Final = "the count took longer than the budget allows"
"""The reason of a count that was stopped."""


class Uncountable(Exception):
    """Stops a count; the message becomes the count's reason. It never leaves this package."""


class Kind(NamedTuple):
    """The arithmetic of operations: the operands' type, and matrix products or convolutions (TF32 has a flag each)."""

    dtype: str
    """torch's name without ``torch.``: ``bfloat16``, ``float8_e4m3fn``."""
    family: Family


class FlopKey(NamedTuple):
    """The module, phase and kind of operations. ``fqn`` is the innermost module; ``""`` is the model itself."""

    fqn: str
    phase: Phase
    kind: Kind


@dataclass(frozen=True, slots=True)
class FlopCount:
    """Floating-point operations (a multiplication and an addition are two), each at its innermost module.

    With a ``reason`` there is no figure: ``rows`` is empty and every total is None. A count that was stopped in the
    backward has the rows of the whole forward.
    """

    rows: Mapping[FlopKey, int] = field(default_factory=dict)
    moved: Mapping[tuple[str, Phase], int] = field(default_factory=dict)
    """Bytes that the operators without FLOPs of each innermost module read and write, by phase."""
    operators: Mapping[tuple[str, Phase], int] = field(default_factory=dict)
    """Tensors that operators compute, once for each group of a convolution, of each innermost module, by phase."""
    python: Mapping[tuple[str, Phase], int] = field(default_factory=dict)
    """Processor time that Python takes between two operators of each innermost module, in nanoseconds, by phase."""
    attention: Mapping[tuple[str, bool], int] = field(default_factory=dict)
    """Forward operations of unfused attention, by module and whether ``scaled_dot_product_attention`` computed it."""
    lines: Mapping[tuple[str, int], bool] = field(default_factory=dict)
    """The lines of the program that call operators in a forward that is trained, and whether these make a graph."""
    one_hot: frozenset[tuple[str, str, int]] = frozenset()
    """The fqn of the module, the file and the number of lines that multiply one-hot rows with a matrix."""
    reason: str | None = None
    notes: tuple[str, ...] = ()
    """Exclusions and assumptions of the figure."""

    def flops(self, phases: Phase | Iterable[Phase] = HARDWARE_PHASES) -> int | None:
        """Return the operations of these phases, or None without a figure."""
        wanted = {phases} if isinstance(phases, str) else phases
        return None if self.reason is not None else sum(self.kinds(wanted).values())

    def kinds(self, phases: Iterable[Phase] = HARDWARE_PHASES) -> dict[Kind, int]:
        """Return the operations of these phases by arithmetic; nothing without a figure."""
        wanted = set(phases)
        found: Tally[Kind] = Tally()
        for key, flops in self.rows.items():
            if key.phase in wanted:
                found[key.kind] += flops
        return dict(found)

    def within(self, part: str) -> FlopCount:
        """Return the count of a module as that of a part of a model, by the fqn of the part."""
        if not part:
            return self

        def at(fqn: str) -> str:
            return f"{part}.{fqn}" if fqn else part

        def moved_to(counts: Mapping[tuple[str, T], int]) -> dict[tuple[str, T], int]:
            return {(at(fqn), other): count for (fqn, other), count in counts.items()}

        return replace(
            self,
            rows={key._replace(fqn=at(key.fqn)): flops for key, flops in self.rows.items()},
            moved=moved_to(self.moved),
            operators=moved_to(self.operators),
            python=moved_to(self.python),
            attention=moved_to(self.attention),
            one_hot=frozenset((at(fqn), file, line) for fqn, file, line in self.one_hot),
        )

    def with_backward(self, shares: Mapping[str, float]) -> FlopCount:
        """Return the count with these shares of the backward of parts of the model, by their fqn."""

        def share(fqn: str, phase: Phase) -> float:
            of_parts = (one for part, one in shares.items() if not part or f"{fqn}.".startswith(f"{part}."))
            return next(of_parts, 1.0) if phase is Phase.BACKWARD else 1.0

        def shared(counts: Mapping[tuple[str, Phase], int]) -> dict[tuple[str, Phase], int]:
            return {part: round(count * share(*part)) for part, count in counts.items()}

        return replace(
            self,
            rows={key: round(flops * share(key.fqn, key.phase)) for key, flops in self.rows.items()},
            moved=shared(self.moved),
            operators=shared(self.operators),
            python=shared(self.python),
        )


def weighted_sum(counts: Iterable[tuple[FlopCount, float]]) -> FlopCount:
    """Add counts, each multiplied by its weight. A count without a figure leaves the sum without one."""
    rows: dict[FlopKey, float] = defaultdict(float)
    moved: dict[tuple[str, Phase], float] = defaultdict(float)
    operators: dict[tuple[str, Phase], float] = defaultdict(float)
    python: dict[tuple[str, Phase], float] = defaultdict(float)
    attention: dict[tuple[str, bool], float] = defaultdict(float)
    lines: dict[tuple[str, int], bool] = {}
    one_hot: set[tuple[str, str, int]] = set()
    reasons: dict[str, None] = {}
    notes: dict[str, None] = {}
    for count, weight in counts:
        notes.update(dict.fromkeys(count.notes))
        if count.reason is not None:
            reasons[count.reason] = None
        for key, flops in count.rows.items():
            rows[key] += flops * weight
        for part, size in count.moved.items():
            moved[part] += size * weight
        for part, calls in count.operators.items():
            operators[part] += calls * weight
        for part, took_ns in count.python.items():
            python[part] += took_ns * weight
        for place, flops in count.attention.items():
            attention[place] += flops * weight
        for line, makes_graph in count.lines.items():
            lines[line] = lines.get(line, False) or makes_graph
        one_hot |= count.one_hot
    if reasons:
        return FlopCount(reason="; ".join(reasons), notes=tuple(notes))
    whole_rows = {key: round(flops) for key, flops in rows.items()}
    return FlopCount(
        whole_rows,
        {part: round(size) for part, size in moved.items()},
        {part: round(calls) for part, calls in operators.items()},
        {part: round(took_ns) for part, took_ns in python.items()},
        {place: round(flops) for place, flops in attention.items()},
        lines,
        frozenset(one_hot),
        notes=tuple(notes),
    )
