"""``CountTable``: the operations of one module call, and how often calls of modules inside it are repeated."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ....base.frame import Phase
from .flop_count import FlopKey


@dataclass(eq=False, slots=True)
class Repeats:
    """The calls that have the same operations as a call that was counted, in a module of this fqn."""

    table: CountTable
    counted_fqn: str
    """The fqn of the module whose call was counted."""
    fqn: str
    forward: int = 0
    backward: int = 0
    sums: dict[str, tuple[int, int]] = field(default_factory=dict)
    """For each module inside: the sums of gradients that each backward but the first adds, and the bytes they move."""


@dataclass(eq=False, slots=True)
class CountTable:
    """Operations by module and phase. Those of ``repeats`` are not included."""

    rows: Counter[FlopKey] = field(default_factory=Counter)
    moved: Counter[tuple[str, Phase]] = field(default_factory=Counter)
    """Bytes."""
    operators: Counter[tuple[str, Phase]] = field(default_factory=Counter)
    python: Counter[tuple[str, Phase]] = field(default_factory=Counter)
    """Nanoseconds between operators."""
    attention: Counter[tuple[str, bool]] = field(default_factory=Counter)
    uncounted: Counter[str] = field(default_factory=Counter)
    """Calls of operators without a formula."""
    repeats: dict[tuple[int, str], Repeats] = field(default_factory=dict)
    """By the table's identity and the fqn."""

    def repeat(self, table: CountTable, counted_fqn: str, fqn: str) -> Repeats:
        """Return the repeats of a counted call by the module of this fqn inside this one."""
        return self.repeats.setdefault((id(table), fqn), Repeats(table, counted_fqn, fqn))

    @property
    def has_backward(self) -> bool:
        """Whether operators of a backward pass were counted, here or inside."""
        own = any(phase is not Phase.FORWARD for _, phase in self.operators)
        return own or any(one.backward and one.table.has_backward for one in self.repeats.values())

    def total(self) -> CountTable:
        """Return the table with the operations of all repeats."""
        whole = CountTable(
            Counter(self.rows),
            Counter(self.moved),
            Counter(self.operators),
            Counter(self.python),
            Counter(self.attention),
            Counter(self.uncounted),
        )
        for one in self.repeats.values():
            whole._add(one.table.total(), one)
        return whole

    def _add(self, table: CountTable, repeats: Repeats) -> None:
        for key, flops in table.rows.items():
            renamed = key._replace(fqn=_rename(key.fqn, repeats))
            self.rows[renamed] += flops * _times(key.phase, repeats)
        for mine, theirs in (
            (self.moved, table.moved), (self.operators, table.operators), (self.python, table.python)
        ):  # fmt: skip
            for (fqn, phase), count in theirs.items():
                mine[_rename(fqn, repeats), phase] += count * _times(phase, repeats)
        for fqn, (count, moved) in repeats.sums.items():
            self.operators[fqn, Phase.BACKWARD] += count * max(repeats.backward - 1, 0)
            self.moved[fqn, Phase.BACKWARD] += moved * max(repeats.backward - 1, 0)
        for (fqn, by_sdpa), flops in table.attention.items():
            self.attention[_rename(fqn, repeats), by_sdpa] += flops * repeats.forward
        for name, count in table.uncounted.items():
            self.uncounted[name] += count * repeats.forward


def _times(phase: Phase, repeats: Repeats) -> int:
    return repeats.forward if phase is Phase.FORWARD else repeats.backward


def _rename(fqn: str, repeats: Repeats) -> str:
    """Return the fqn of the module in the same place of the repeating one."""
    if repeats.fqn == repeats.counted_fqn:
        return fqn
    return repeats.fqn + fqn.removeprefix(repeats.counted_fqn)
