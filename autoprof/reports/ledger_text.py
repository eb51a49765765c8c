"""The ledger in words: the parts of a healthy step, and the largest part of it that nothing explains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..base.frame import Phase
from ..base.summary import POSTPONED, LedgerEntry, Summary
from ..base.units import format_flops, format_percent

NAMED_SHARE: Final = 0.05
"""Share of the step from which a phase or a module is named in a healthy run's verdict."""
LARGE_SHARE: Final = 0.25
"""Share of the step from which a module's own work is the place to begin."""
MOST: Final = 0.5
"""Share of the step from which on the model's work explains a run."""
MIN_UNEXPLAINED: Final = 0.15
"""Share of the step that nothing explains from which a run without findings is not called healthy."""


def is_explained(summary: Summary) -> bool:
    """Return whether no owner has a good part of the step that nothing explains, or that is a wait no rule has judged.

    It is asked of runs without a finding.
    """
    return _largest_unexplained(summary).ns < MIN_UNEXPLAINED * max(summary.step_mean_ns, 1)


def describe_unexplained(summary: Summary) -> str:
    """Phrase the largest part of the step that nothing explains."""
    largest = _largest_unexplained(summary)
    share = format_percent(largest.ns / max(summary.step_mean_ns, 1))
    if largest.name is None:
        return f"{share} of the step is in no span"
    if largest.state == "waiting":
        return f"{share} of the step is a wait ({largest.name})"
    lines = f": {largest.lines}" if largest.lines else ""
    why = "whose work was not counted" if largest.state == "uncounted" else "which its work does not explain"
    return f"{share} of the step is {largest.phase} of {largest.name}, {why}{lines}"


def how_to_clarify(summary: Summary) -> str:
    """Phrase what tells more about the largest part of the step that nothing explains."""
    if _largest_unexplained(summary).state == "waiting":
        return "a longer run, or one beside no other processes, tells whether the program makes it wait"
    if _largest_unexplained(summary).state == "uncounted":
        return "begin with these lines: is what they compute needed in each step, and in full?"
    return 'put with autoprof.span("..."): around parts of the code to see which of them takes the time'


def consists_of(summary: Summary) -> str:
    """Phrase the parts of a run's steps: the phases, the modules with most time, and what their work explains."""
    step_ns = max(summary.step_mean_ns, 1)
    steps = max(summary.steps, 1)
    shares = sorted(((ns / steps / step_ns, str(phase)) for phase, ns in summary.phases.items()), reverse=True)
    phases = ", ".join(f"{phase} {format_percent(share)}" for share, phase in shares if share >= NAMED_SHARE)
    longest = ((name, share) for name, share in _longest(summary)[:2] if share >= NAMED_SHARE)
    names = " and ".join(f"{name} ({format_percent(share)})" for name, share in longest)
    most = f"; most of it in {names}" if names else ""
    return f"a step is {phases}{most}{_work(summary)}"


def where_to_begin(summary: Summary) -> str:
    """Phrase the next step of a run without findings: its longest modules are the place to begin.

    Where the model's work explains less than half of the step, the text says that no cause was found.
    """
    is_known = summary.work is None or _explained(summary) >= MOST
    nothing = "nothing to mend" if is_known else "no cause was found"
    longest = [name for name, share in _longest(summary)[:2] if share >= LARGE_SHARE]
    if not longest:
        return nothing
    return (
        f"{nothing}; to spend less, begin with the work of {' and '.join(_with_lines(summary, longest))}: is all "
        "of its output used, and would fewer operations or smaller tensors do?"
    )


def _with_lines(summary: Summary, names: list[str]) -> Iterator[str]:
    """Yield each module with the lines of the program that take most of its forward."""
    for name in names:
        found = (f" (of its {one.phase} {one.lines})" for one in summary.ledger if one.name == name and one.lines)
        yield name + next(found, "")


def _longest(summary: Summary) -> list[tuple[str, float]]:
    """Return the modules with their own shares of the step, the longest first."""
    own: dict[str, int] = {}
    for one in summary.ledger:
        if one.name is not None and one.phase is not None and one.phase.traits.in_module:
            own[one.name] = own.get(one.name, 0) + one.ns
    shares = ((name, ns / max(summary.step_mean_ns, 1)) for name, ns in own.items())
    return sorted(shares, key=lambda one: -one[1])


def _work(summary: Summary) -> str:
    """Phrase the share of the step that the model's work explains; empty where FLOPs are switched off."""
    explained = _explained(summary)
    if summary.work is None:
        return ""
    if not explained:
        reason = f" ({summary.work.reason})" if summary.work.reason else ""
        return f". Whether the model's work explains it is not known: FLOPs were not counted{reason}"
    rate = f", at {format_flops(summary.work.flops_per_s)}/s" if summary.work.flops_per_s else ""
    return f". {format_percent(explained)} of it is explained by the model's work{rate}"


def _explained(summary: Summary) -> float:
    """Return the share of the step that the model's work explains."""
    return sum(one.ns for one in summary.ledger if one.state == "arithmetic") / max(summary.step_mean_ns, 1)


def _largest_unexplained(summary: Summary) -> LedgerEntry:
    nothing = LedgerEntry(None, Phase.OTHER, "unexplained", 0)
    found = (one for one in summary.ledger if one.state in ("unexplained", "waiting") or _is_unknown(summary, one))
    return max(found, key=lambda one: one.ns, default=nothing)


def _is_unknown(summary: Summary, one: LedgerEntry) -> bool:
    """Return whether lines of the program take most of a forward whose work cannot be counted."""
    is_uncountable = summary.work is not None and summary.work.reason not in (None, POSTPONED)
    return one.state == "uncounted" and is_uncountable and one.phase is Phase.FORWARD and bool(one.lines)
