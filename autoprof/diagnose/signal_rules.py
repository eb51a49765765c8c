"""Rules on what a step does beside the model: wait for the device, log, compile; and on the rank that is slow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from .._units import format_count, format_ms, format_ns, format_percent
from ..frame import Phase
from ..summary import Finding, Row, Severity
from .calls import CallFacts, CallSite
from .compiled import CompileFacts
from .evidence import Evidence
from .interval import Interval
from .thresholding import Weighed, abstain, near, stand, weigh, weigh_rows
from .thresholds import LOGGING_SHARE, RECOMPILE_SHARE, RECOMPILES, STRAGGLER_SHARE, SYNC_SHARE

NAMED: Final = 3
"""Places named in a sentence; the evidence has more."""
LOGGING: Final = re.compile(
    r"(?<![a-z])(log|logs|logger|logging|metric|metrics|print|tensorboard|wandb|mlflow|tqdm|progress|report)"
    r"(?![a-z]|_prob|_softmax|_likelihood|_sum)",
    re.IGNORECASE,
)
"""Words that say of a span of the user's own that it is about the run, not about the model; a logarithm is no log."""


def sync_call(seen: Evidence) -> Finding | None:
    """Calls that wait for the device, as far as the device then waits for the host."""
    waits = seen.facts.waits
    if seen.summary.clock != "device" or waits is None:
        return abstain("sync-call", "a device's clock", "nothing to do where the model trains on the CPU")
    if not waits.sites:
        return None
    weighed = weigh("sync-call", seen, waits.interval, waits.mean_cost_ns, SYNC_SHARE)
    if not isinstance(weighed, Weighed):
        return weighed
    place = _nearly_all(waits)
    return weighed.finding(
        f"the host waits for the device for {format_ms(waits.mean_ns)} of each step, where it reads values: "
        f"{_places(waits)}. Until it launches again the device stands still, at most "
        f"{format_ms(weighed.mean_ns)} a step ({format_percent(weighed.mean_share)})",
        "keep values on the device (loss.detach(), sums of them) and read them every so many steps; torch.where "
        "instead of an if; print and log from what was read then",
        name=place.where if place else None,
        evidence={"wait_ns": waits.mean_ns, "sites": _evidence(waits)},
    )


def logging(seen: Evidence) -> Finding | None:
    """Logging, metrics and printing within the step: calls that log, and spans that are called so."""
    own, logs = seen.rows.get(Phase.USER), seen.facts.logs
    rows = [row for row in own or [] if LOGGING.search(row.name)]
    if own is None and logs is None:
        return abstain("logging", "user spans", 'put with autoprof.span("Logging"): around what logs in the step')
    spans_ns = sum(row.self_ns for row in rows) / seen.summary.steps
    if logs is not None and logs.sites and logs.mean_ns >= spans_ns:  # calls inside such spans are not counted twice
        return _logging_calls(seen, logs)
    if not rows:
        return None
    weighed = weigh_rows("logging", seen, rows, LOGGING_SHARE)
    if not isinstance(weighed, Weighed):
        return weighed
    longest = max(rows, key=lambda row: (row.self_ns, row.name))
    most = _is_nearly_all(longest, rows)
    inner = f", {format_ms(logs.mean_ns)} of it in {_places(logs)}" if logs is not None and logs.sites else ""
    also = "" if most else f", {format_ms(longest.self_ns / seen.summary.steps)} of it in {longest.name}"
    return weighed.finding(
        f"logging and metrics take {_spent(weighed)}{also}{inner}",
        _LOG_LESS,
        name=longest.name if most else None,
        evidence={"sites": _evidence(logs)} if logs is not None else {},
    )


_LOG_LESS: Final = "log each tenth step; keep sums on the device and read them (.item()) only then"


def _is_nearly_all(row: Row, rows: Sequence[Row]) -> bool:
    return row.self_ns >= 0.8 * sum(one.self_ns for one in rows)


def _logging_calls(seen: Evidence, logs: CallFacts) -> Finding | None:
    weighed = weigh("logging", seen, logs.interval, logs.mean_cost_ns, LOGGING_SHARE)
    if not isinstance(weighed, Weighed):
        return weighed
    place = _nearly_all(logs)
    return weighed.finding(
        f"printing and logging take {_spent(weighed)}: {_places(logs)}",
        _LOG_LESS,
        name=place.where if place else None,
        evidence={"sites": _evidence(logs)},
    )


def _spent(weighed: Weighed) -> str:
    return f"{format_ms(weighed.mean_ns)} ({format_percent(weighed.mean_share)} of the step)"


def _nearly_all(calls: CallFacts) -> CallSite | None:
    """Return the place that has nearly all of the time."""
    first, whole = calls.sites[0], sum(site.ns for site in calls.sites)
    return first if first.ns >= 0.8 * whole else None


def _places(calls: CallFacts) -> str:
    told = []
    for site in calls.sites[:NAMED]:
        often = site.count / calls.steps
        times = f" ({format_count(often)} times)" if often > 1 else ""
        told.append(f"{site.what} at {site.where} {format_ms(site.ns / calls.steps)} a step{times}")
    left = len(calls.sites) - NAMED
    return ", ".join(told) + (f", {left} more" if left > 0 else "")


def _evidence(calls: CallFacts) -> list[dict[str, Any]]:
    return [
        {
            "where": site.where,
            "function": site.function,
            "call": site.call,
            "source": site.source,
            "calls_per_step": round(site.count / calls.steps, 3),
            "ns_per_step": round(site.ns / calls.steps),
        }
        for site in calls.sites
    ]


def recompile(seen: Evidence) -> Finding | None:
    """Functions that torch compiles again and again while the model trains."""
    compiled = seen.facts.compiled
    if compiled is None:
        return abstain("recompile", "the count of compilations", "TORCH_LOGS=recompiles prints them")
    again = [one for one in compiled.functions if one.count or one.gave_up]
    count, gave_up = sum(one.count for one in again), [one for one in again if one.gave_up]
    if not again:
        return None
    share = compiled.ns / max(compiled.run_ns, 1)
    facts = _compile_evidence(compiled, count, share)
    standing = stand(Interval(share, share, share), RECOMPILE_SHARE)
    if not gave_up and (count < RECOMPILES or standing == "below"):
        return None
    if not gave_up and standing == "near":
        return near("recompile", Interval(share, share, share), RECOMPILE_SHARE, facts)
    worst = (gave_up or again)[0]
    limit = f"; torch has given {worst.function} up and runs it uncompiled from then on" if gave_up else ""
    why = f", because {worst.reason}" if worst.reason else ""
    severity: Severity = "critical" if gave_up else "warning"
    return Finding(
        "recompile",
        severity,
        f"in {compiled.compiled_steps} of {compiled.steps} steps torch compiled again ({count} times, "
        f"{format_ns(compiled.ns)} in all, {format_percent(share)} of their time): {worst.function} at {worst.where}"
        f"{why}{limit}",
        "feed it the same shapes (pad or bucket the batches, drop_last=True), mark what changes with "
        "torch._dynamo.mark_dynamic or dynamic=True, and make numbers that change tensors",
        worst.function,
        gain_ns=round(compiled.ns / max(compiled.steps, 1)),
        evidence=facts,
    )


def _compile_evidence(compiled: CompileFacts, count: int, share: float) -> dict[str, Any]:
    functions = [
        {"function": one.function, "where": one.where, "count": one.count, "reason": one.reason, "gave_up": one.gave_up}
        for one in compiled.functions
    ]
    return {
        "count": count,
        "ns": compiled.ns,
        "share": round(share, 4),
        "bound": RECOMPILE_SHARE,
        "steps": compiled.steps,
        "functions": functions,
    }


def straggler(seen: Evidence) -> Finding | None:
    """A rank whose own work takes longer than the others', who wait for it in each step."""
    if seen.facts.world_size <= 1:
        return abstain("straggler", "other ranks", "nothing to do where one process trains alone")
    ranks = seen.facts.ranks
    if ranks is None:
        missing = "the other ranks' records" if seen.facts.rank else "the ranks' records: none compared yet"
        return abstain("straggler", missing, "rank 0 compares them, and so does autoprof show RUN")
    if ranks.missing is not None:
        return abstain("straggler", ranks.missing, "autoprof show RUN compares them where all lie in one folder")
    step = Interval(ranks.step_ns, ranks.step_ns, ranks.step_ns)
    share = ranks.excess.over(step)
    facts = {
        "own_ns": list(ranks.own_ns),
        "excess_ns": round(ranks.excess.middle),
        "share": round(share.middle, 4),
        "share_low": round(share.low, 4),
        "share_high": round(share.high, 4),
        "bound": STRAGGLER_SHARE,
        "steps": ranks.steps,
    }
    standing = stand(share, STRAGGLER_SHARE)
    if standing != "above":
        return near("straggler", share, STRAGGLER_SHARE, facts) if standing == "near" else None
    place = f", most of it in {ranks.name} ({ranks.phase}, {format_ms(ranks.name_ns)})" if ranks.name else ""
    return Finding(
        "straggler",
        "warning",
        f"rank {ranks.rank} works {format_ms(ranks.own_ns[ranks.rank])} of each step by itself, "
        f"{format_ms(ranks.excess.middle)} ({format_percent(share.middle)} of the step) more than the others in the "
        f"median of {ranks.steps} steps{place}; so long they wait for it",
        _even_out(ranks.phase),
        ranks.name,
        ranks.phase,
        ranks.rank,
        gain_ns=ranks.gain_ns,
        evidence=facts,
    )


def _even_out(phase: Phase | None) -> str:
    if phase is Phase.DATA:
        return "look at that rank's loader: its disk, its share of the files, the length of its samples, its workers"
    if phase is Phase.USER:
        return "what only that rank does (logging, saving) belongs on every rank in turn, or outside of the step"
    return (
        "give every rank as much work (lengths of its samples, its part of the model); if it has the same, look at "
        "that machine: another process, its clocks and temperature, its link"
    )
