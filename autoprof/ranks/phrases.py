"""Phrase a comparison of ranks: who is slow, by how much, how often, where and why."""

from __future__ import annotations

from typing import Final

from ..base.frame import Phase
from ..base.units import format_ms, format_percent
from .comparison import RankComparison, SlowRank, name_ranks

NAMED_STEPS: Final = 3
"""Late steps that the sentence names."""


def phrase_slow(ranks: RankComparison) -> str:
    """Return the sentence on the slow ranks of a comparison that has some."""
    slow, *others = ranks.slow
    also = "".join(f"; so does rank {one.rank}, by {_amount(one, ranks.step_ns)}{_place(one)}" for one in others)
    return (
        f"rank {slow.rank} takes {_amount(slow, ranks.step_ns)} longer than the others{_when(slow, ranks)}"
        f"{_place(slow)}; the other ranks wait for it{_explain(slow)}{also}{_absent(ranks)}"
    )


def _amount(one: SlowRank, step_ns: int) -> str:
    mean = "" if one.kind == "persistent" else " on average"
    ns = one.excess_ns.middle
    return f"{format_ms(ns)}{mean} ({format_percent(ns / max(step_ns, 1))} of the step)"


def _when(one: SlowRank, ranks: RankComparison) -> str:
    """Return how often a rank is late, and in which steps."""
    if one.kind == "persistent":
        return f" in each step ({one.late} of {ranks.steps} compared)"
    numbers = ", ".join(map(str, one.steps[:NAMED_STEPS])) + (", …" if one.late > NAMED_STEPS else "")
    if one.kind == "one-off":
        return f", once, in {'step' if one.late == 1 else 'steps'} {numbers}"
    how = "again and again" if one.period is None else f"every {one.period} steps"
    return f", {how} ({one.late} of {ranks.steps} compared steps: {numbers})"


def _place(one: SlowRank) -> str:
    if one.phase is Phase.OTHER:
        return ", outside of all spans" if one.name else ", spread over its rows"
    # The part of an excess from which its row is named alone.
    if one.name_ns >= 0.8 * one.excess_ns.middle:
        return f", in {one.name} ({one.phase})"
    if 2 * one.name_ns < one.excess_ns.middle:
        return f", spread over its rows, most of all {one.name} ({one.phase}, {format_ms(one.name_ns)})"
    return f", most of it in {one.name} ({one.phase}, {format_ms(one.name_ns)})"


def _explain(one: SlowRank) -> str:
    """Return the clause with the cause, where a reading shows it."""
    amount = one.amount.replace("_", " ")
    if one.cause == "clock" and one.ratio is not None:
        return f". Its device's clock is at {format_percent(one.ratio)} of the others'"
    if one.cause == "batches" and one.ratio is not None:
        part = one.explained or 0.0
        explained = "all" if part > 0.995 else format_percent(part)
        return f". Its batches are larger: {one.ratio:.2f} times the others' {amount}, which explains {explained} of it"
    if one.cause == "busy machine" and one.ratio is not None:
        return f". It waits for a processor in {format_percent(one.ratio)} more of the time than the others"
    same = f". It has as many {amount} as the others" if amount else ""
    return same + ". It is slower in nearly all rows" if one.cause == "machine" else same


def _absent(ranks: RankComparison) -> str:
    if not ranks.absent:
        return ""
    return f". {name_ranks(ranks.absent).capitalize()} could not be compared: no records of the same steps"
