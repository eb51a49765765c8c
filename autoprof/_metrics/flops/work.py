"""What a count says: floating-point operations by module, phase and arithmetic, or why there is no figure."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from ...frame import Phase

MODEL_PHASES: Final = (Phase.FORWARD, Phase.BACKWARD)
"""What the model asks for, however it is computed: the phases of MFU (Chowdhery et al. 2022, PaLM, appendix B)."""
HARDWARE_PHASES: Final = (*MODEL_PHASES, Phase.RECOMPUTE)
"""What the device has to compute: the phases of HFU."""

Family = Literal["matmul", "conv"]


class Kind(NamedTuple):
    """The arithmetic of some work: the operands' type, and whether matrices or convolutions (TF32 has a flag each)."""

    dtype: str
    """As torch writes it, without ``torch.``: ``bfloat16``, ``float8_e4m3fn``."""
    family: Family


class WorkKey(NamedTuple):
    """Whose work it is, and of which phase and kind. ``fqn`` is the innermost module; ``""`` is the model itself."""

    fqn: str
    phase: Phase
    kind: Kind


@dataclass(frozen=True, slots=True)
class WorkCount:
    """Floating-point operations (a multiplication and an addition are two), each at its innermost module.

    With a ``reason`` there is no figure: ``rows`` is empty and every total is None.
    """

    rows: Mapping[WorkKey, int] = field(default_factory=dict)
    attention: Mapping[tuple[str, bool], int] = field(default_factory=dict)
    """Forward operations of attention written out, by module and whether ``scaled_dot_product_attention`` did it."""
    uncounted: Mapping[str, int] = field(default_factory=dict)
    """Operators that do work of a kind that counts, but have no formula, with their calls."""
    reason: str | None = None
    notes: tuple[str, ...] = ()
    """What the figure leaves out or assumes."""
    count_ns: int = 0
    """What counting cost, on the calling thread."""

    def flops(self, fqn: str = "", phases: Phase | Iterable[Phase] = HARDWARE_PHASES) -> int | None:
        """Return the operations of the module and all inside it, or None where there is no figure."""
        if self.reason is not None:
            return None
        wanted = {phases} if isinstance(phases, str) else set(phases)
        return sum(flops for key, flops in self.rows.items() if key.phase in wanted and _inside(key.fqn, fqn))

    def self_flops(self) -> dict[tuple[str, Phase], int]:
        """Return the operations of each module and phase, without those of the modules inside."""
        found: Tally[tuple[str, Phase]] = Tally()
        for key, flops in self.rows.items():
            found[key.fqn, key.phase] += flops
        return dict(found)

    def kinds(self, fqn: str = "", phases: Phase | Iterable[Phase] = HARDWARE_PHASES) -> dict[Kind, int]:
        """Return the operations of the module and all inside it by arithmetic; nothing where there is no figure."""
        wanted = {phases} if isinstance(phases, str) else set(phases)
        found: Tally[Kind] = Tally()
        for key, flops in self.rows.items():
            if key.phase in wanted and _inside(key.fqn, fqn):
                found[key.kind] += flops
        return dict(found)


def add_up(counts: Iterable[tuple[WorkCount, int]]) -> WorkCount:
    """Add counts, each so many times: the calls of one step. One without a figure leaves the sum without one."""
    rows: Tally[WorkKey] = Tally()
    attention: Tally[tuple[str, bool]] = Tally()
    uncounted: Tally[str] = Tally()
    reasons: dict[str, None] = {}
    notes: dict[str, None] = {}
    count_ns = 0
    for count, times in counts:
        count_ns += count.count_ns
        notes.update(dict.fromkeys(count.notes))
        for name, calls in count.uncounted.items():
            uncounted[name] += calls * times
        if count.reason is not None:
            reasons[count.reason] = None
        for key, flops in count.rows.items():
            rows[key] += flops * times
        for place, flops in count.attention.items():
            attention[place] += flops * times
    reason = "; ".join(reasons) or None
    return WorkCount(
        {} if reason else dict(rows), {} if reason else dict(attention), dict(uncounted), reason, tuple(notes), count_ns
    )


def _inside(fqn: str, outer: str) -> bool:
    return not outer or fqn == outer or fqn.startswith(outer + ".")
