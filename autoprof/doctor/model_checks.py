"""Checks of the model by trial steps: equal bits, no hooks left, coverage, times that add up, overhead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import numpy as np

from .._names import quoted, shorten, visible
from .._targets import Coverage, Reason
from .._units import count, format_ms, format_percent
from ..config import Sample
from ..frame import TRAINING_LANE, Phase, StepFrame
from ..summary import format_counts
from .outcome import Observed, Outcome, Profiled
from .result import Result, ok, problem, unknown, warning
from .trial import Trials

NAMED: Final = 6
"""Names listed in a sentence; the rest is counted."""
FAULTS: Final = frozenset({Reason.DIRECT, Reason.OWN_CALL, Reason.COMPILED, Reason.SCRIPTED})
"""Reasons of the model's own design why a module that runs is not seen."""


def compare_trials(trials: Trials) -> tuple[Result, list[Outcome], Profiled | None]:
    """Check that a profiled step has the bits of a bare one; return the result, the bare trials and a profiled one.

    Only tensors that are equal between bare steps are compared. Where a profiled step differs, a bare and a profiled
    one run again, so that a model that is sometimes not deterministic is not reported as harmed. The profiled trial
    is None if the bare step fails.
    """
    bare = [trials.bare(), trials.bare()]
    for outcome in bare:
        if outcome.error is not None:
            advice = "the step must run before it can be compared"
            return unknown("identity", f"one step without autoprof fails: {outcome.error}", advice), bare, None
    if _unstable(bare):
        bare.append(trials.bare())
        if not _unstable(bare[1:]):
            bare = bare[1:]  # only the first step of the process differs: torch sets things up in it
    profiled = [trials.profiled()]
    if _different(bare, profiled):
        bare.append(trials.bare())
        profiled.append(trials.profiled())
    return _identity(bare, profiled, trials.in_place), bare, profiled[0]


def _identity(bare: list[Outcome], profiled: list[Profiled], in_place: bool) -> Result:
    failed = next((outcome.error for outcome in profiled if outcome.error is not None), None)
    if failed is not None:
        return problem("identity", f"the step runs bare and fails under autoprof: {failed}", _report_it())
    unstable, different = _unstable(bare), _different(bare, profiled)
    compared = len(bare[0].digests)
    found = {"compared": compared, "unstable": unstable, "different": different, "in_place": in_place}
    if different:
        spoiled = sum(bool(_different(bare, [one])) for one in profiled)
        message = (
            f"{len(different)} of {compared} tensors and states differ from the bare step: {_named(different)} "
            f"({spoiled} of {len(profiled)} profiled steps differ, {len(bare)} bare ones agree)"
        )
        return problem("identity", message, _report_it(), **found)
    kind = "" if bare[0].trained else " (no output requires a gradient: forward only)"
    if not unstable:
        return ok("identity", f"{compared} tensors and states of one step are equal to the last bit{kind}", **found)
    own = f"the model itself is not deterministic: between bare steps {len(unstable)} of {compared} differ"
    results = [key for key in bare[0].digests if key.startswith(("output", "gradient"))]
    if all(key in unstable for key in results):
        advice = "make it repeatable from torch's, numpy's and Python's random state, and repeat"
        return unknown(
            "identity", f"{own}, among them every output and gradient; nothing can be compared", advice, **found
        )
    advice = "torch.use_deterministic_algorithms(True) or a fixed seed makes all of it comparable"
    return warning(
        "identity", f"{own} ({_named(unstable)}); all others are equal to the last bit{kind}", advice, **found
    )


def _unstable(bare: list[Outcome]) -> list[str]:
    return _different(bare[:1], bare[1:])


def _different(bare: list[Outcome], others: Iterable[Outcome]) -> list[str]:
    """Return the keys that agree in all bare outcomes, and differ, are missing or are additional in another one."""
    first = bare[0].digests
    agreed = {key: first.get(key) for key in first if all(one.digests.get(key) == first[key] for one in bare)}
    known = set().union(*(one.digests for one in bare))
    found = [key for key in agreed if any(one.digests.get(key) != agreed[key] for one in others)]
    return found + sorted({key for one in others for key in one.digests if key not in known})


def check_hooks_removed(profiled: Profiled) -> Result:
    """Check that the model has the same hooks as before."""
    if changed := profiled.changed_hooks:
        message = f"after close() the hooks of {count(len(changed), 'module')} differ from before: {_named(changed)}"
        return problem("leaves-nothing", message, _report_it())
    return ok("leaves-nothing", "after close() every module has the same hooks as before")


def check_coverage(observed: Observed, *, chosen: bool) -> Result:
    """Check which modules hooks see; ``chosen``: the user's configuration selected exactly these."""
    if observed.error is not None:
        return unknown("visibility", f"the step fails while it is observed: {observed.error}")
    modules = observed.modules
    hidden = [one for one in modules if not one.seen and one.reason is not Reason.CONTAINER]
    faults = [one for one in modules if one.reason in FAULTS]
    seen = sum(bool(one.seen) for one in modules)
    containers = sum(one.reason is Reason.CONTAINER for one in modules)
    message = f"{seen} of {len(modules) - containers} modules that can be called are seen"
    if containers:
        message += f" ({containers} containers are never called)"
    if not observed.complete:
        message += "; another Python profiler is active, so direct calls of .forward() are not recognised"
    blamed = hidden if chosen else [one for one in faults if not one.seen or one.missed]
    if blamed:
        return warning(
            "visibility", f"{message}; not, or not always: {_by_reason(blamed)}", "see the list below for the reasons"
        )
    return ok("visibility", message)


def check_account(profiled: Profiled) -> Result:
    """Check on every frame that spans nest, no time is negative, and nothing was lost."""
    if not profiled.frames or profiled.summary is None:
        return problem("account", "no step was resolved", _report_it())
    faults = [fault for frame in profiled.frames for fault in _faults(frame)]
    if faults:
        return problem("account", f"times do not add up: {_named(sorted(set(faults)))}", _report_it())
    lost = {**profiled.summary.dropped, **profiled.summary.skipped}
    spans = len(profiled.frames[0].layout)
    message = (
        f"{spans} spans a step nest, children + self = parent, phases + other = step, in {len(profiled.frames)} steps"
    )
    if lost:
        return warning("account", f"{message}; lost: {format_counts(lost)}", "the summary of a run counts them too")
    return ok("account", message, spans=spans)


def check_backward(profiled: Profiled, observed: Observed) -> Result:
    """Check that every call that received a gradient has a backward span."""
    if observed.error is not None:
        return unknown("backward", f"the step fails while it is observed: {observed.error}")
    if not profiled.trained:
        return ok("backward", "no output requires a gradient, so there is no backward to time")
    spans = profiled.backward_calls()
    total = sum(observed.gradient_calls.values())
    lacking = {
        fqn: calls - spans.get(fqn, 0) for fqn, calls in observed.gradient_calls.items() if spans.get(fqn, 0) < calls
    }
    missing = sum(lacking.values())
    message = f"{total - missing} of {total} calls that received a gradient have a backward span"
    if missing:
        names = _named(fqn or "the model" for fqn in lacking)
        return warning("backward", f"{message}; not {names}", "their time is in the surrounding span", lacking=lacking)
    return ok("backward", message, calls=total)


def check_overhead(bare: list[Outcome], profiled: Profiled, sample: Sample, *, chosen: bool) -> Result:
    """Estimate the overhead on this model: autoprof's measured cost over a bare step, the lowest of each."""
    lengths = [outcome.shortest_ns for outcome in bare if outcome.shortest_ns is not None]
    frames = profiled.frames[1:]
    if not lengths or not frames:
        return unknown("overhead", "no second step fitted into the time limit")
    step_ns, own_ns = min(lengths), min(frame.overhead_ns for frame in frames)
    share = own_ns / step_ns / sample.every
    spans = len(frames[0].layout)
    scope = "these targets" if chosen else "every module timed"
    scope += f", 1 step in {sample.every}" if sample.every > 1 else ""
    message = f"{format_percent(share)} of a step of {format_ms(step_ns)} ({spans} spans, {scope})"
    found = {"share": share, "overhead_ns": own_ns, "step_ns": step_ns, "spans": spans}
    if chosen and sample.budget is not None and share > sample.budget:
        advice = "raise sample.every or use fewer targets"
        message = f"{message}, more than the budget of {format_percent(sample.budget)}"
        return warning("overhead", message, advice, **found)
    return ok("overhead", message, **found)


def _faults(frame: StepFrame) -> list[str]:
    """List the sums that do not add up in one frame."""
    layout, found = frame.layout, []
    total = frame.total_ns
    lanes, parents = np.array(layout.lanes, dtype=np.int64), np.array(layout.parents, dtype=np.int64)
    if frame.dropped:
        found.append("spans were dropped")
    if (total < 0).any():
        found.append("a span ends before it starts")
    if len(layout) and (layout.self_ns(total)[lanes == TRAINING_LANE] < 0).any():
        found.append("children are longer than their parent")
    phases = frame.phase_ns()
    if phases[Phase.OTHER] < 0 or sum(phases.values()) != frame.step_ns:
        found.append("phases are longer than the step")
    children = np.flatnonzero(parents >= 0)
    start, end = frame.start_ns, frame.start_ns + frame.host_ns
    outside = (start[children] < start[parents[children]]) | (end[children] > end[parents[children]])
    if outside.any():
        found.append("a span lies outside its parent")
    return found


def _by_reason(modules: Iterable[Coverage]) -> str:
    reasons = Counter(str(one.reason) for one in modules)
    return ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())


def _named(names: Iterable[str]) -> str:
    """List the first names and count the rest."""
    shown = [*names]
    rest = len(shown) - NAMED
    listed = ", ".join(shorten(visible(name), 80) for name in shown[:NAMED])
    return f"{listed} and {rest} more" if rest > 0 else listed or quoted("")


def _report_it() -> str:
    return "do not profile this model, and report it with `autoprof doctor --json`"
