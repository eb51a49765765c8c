"""The bounds of autoprof's cost, and whether the measured figures keep them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any, Final

from .stats import ENOUGH, Estimate, beyond, cost_ratio, ratio, rounds_of

CLOCK_NS: Final = 50.0
"""The cost of ``perf_counter_ns`` for which the bounds on single calls are stated; they scale with the machine's."""
MIB: Final = 1 << 20

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Bound:
    """One bound: its subject, the limit, the measured figure, and ``passed`` (None: unmeasured in this run)."""

    subject: str
    bound: str
    measured: str
    passed: bool | None
    clear: bool = True
    """False if the interval reaches over the bound or the rounds were few: inconclusive."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def verdict(results: Json) -> list[Bound]:
    """Compare the results with every bound, in order."""
    return [
        *_recording(results),
        *_further(results),
        *_states(results),
        *_calls(results),
        _full(results),
        _sinks(results),
        *_worst(results),
        *_long(results),
        *_rest(results),
    ]


def _missing(subject: str, bound: str) -> Bound:
    return Bound(subject, bound, "not measured", None)


def _at_most(subject: str, limit: float, measured: Estimate | None, *, digits: int = 2, sign: str = "×") -> Bound:
    bound = f"≤ {limit:.{digits}f}{sign}"
    if measured is None:
        return _missing(subject, bound)
    if isnan(measured.value):
        return Bound(subject, bound, "smaller than the noise", None, False)
    text = f"{measured.value:.{digits}f}{sign} [{measured.low:.{digits}f}, {measured.high:.{digits}f}]"
    return Bound(subject, bound, text, measured.value <= limit, measured.excludes(limit))


def _blocks(results: Json, workload: str) -> Json:
    blocks: Json = results["workloads"].get(workload, {}).get("blocks", {})
    return blocks


def _steady_blocks(results: Json) -> Json:
    blocks: Json = results.get("steady", {}).get("blocks", {})
    return blocks


def _costs(results: Json, variant: str, other: str) -> Estimate | None:
    """Compare the costs beyond bare: in the long run, or in blocks that open a session each where that is unknown."""
    for blocks in (_steady_blocks(results), _blocks(results, "layers")):
        if all(name in blocks for name in (variant, other, "bare")):
            return cost_ratio(*rounds_of(blocks, variant, other, "bare"))
    return None


def _ratio(results: Json, workload: str, variant: str) -> Estimate | None:
    blocks = _blocks(results, workload)
    if variant not in blocks or "bare" not in blocks:
        return None
    return ratio(*rounds_of(blocks, variant, "bare"))


def _recording(results: Json) -> list[Bound]:
    whole = "with resolution, frame and statistics"
    return [
        _at_most("recording, forward: cost over the floor", 1.25, _costs(results, "record_forward", "floor_forward")),
        _at_most("recording, both: cost over the floor", 1.15, _costs(results, "record_both", "floor_both")),
        _at_most(f"forward {whole}", 1.4, _costs(results, "session_forward", "floor_forward")),
        _at_most(f"both {whole}", 1.1, _costs(results, "session_both", "floor_both")),
        _at_most(
            "both, over register_full_backward_hook", 1 / 3, _costs(results, "session_both", "full_backward_hook")
        ),
    ]


def _further(results: Json) -> list[Bound]:
    """Compare a further module's cost with the same bounds: the fixed cost of a step is on neither side."""
    return [
        _at_most(f"a further module, {subject}", limit, _further_costs(results, variant, other))
        for subject, limit, variant, other in (
            ("recorded forward", 1.25, "record_forward", "floor_forward"),
            ("recorded both", 1.15, "record_both", "floor_both"),
            ("forward with resolution", 1.6, "session_forward", "floor_forward"),
            ("both with resolution", 1.6, "session_both", "floor_both"),
            ("both, over register_full_backward_hook", 1 / 3, "session_both", "full_backward_hook"),
        )
    ]


def _further_costs(results: Json, variant: str, other: str) -> Estimate | None:
    blocks = results.get("further", {}).get("blocks")
    if blocks is None or any(name not in blocks["short"] for name in (variant, other, "bare")):
        return None
    return cost_ratio(*beyond(blocks["long"], blocks["short"], variant, other, "bare"))


def _states(results: Json) -> list[Bound]:
    bounds = []
    for variant, state in (("never_opened", "never opened"), ("closed", "closed again")):
        for workload, measured in results["workloads"].items():
            estimate = _ratio(results, workload, variant)
            label = f"{state}, {workload}: × bare, and no hooks"
            if estimate is None:
                bounds.append(_missing(label, "1.00"))
                continue
            text = f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}], {measured['hooks_left']} hooks"
            passed = estimate.low <= 1.0 + _NOISE and measured["hooks_left"] == 0
            bounds.append(Bound(label, "1.00", text, passed, estimate.rounds >= ENOUGH))
    size = results["options"]["size"]
    idle = _ratio(results, "reference", "idle")
    return [*bounds, _at_most(f"attached, not sampling, reference ({size})", 1.005, idle, digits=3, sign="")]


_NOISE: Final = 0.002
"""Two sides of one coin differ by this much on a quiet machine."""


def _calls(results: Json) -> list[Bound]:
    micro = results.get("micro")
    names = (("@timed without a session", "timed_off_ns", 250.0), ("span with a session", "span_on_ns", 1500.0))
    bounds = []
    for subject, key, limit_ns in names:
        scaled = limit_ns if micro is None else limit_ns * micro["clock_ns"] / CLOCK_NS
        bound = f"≤ {scaled / 1e3:.2f} µs"
        if micro is None:
            bounds.append(_missing(subject, bound))
        else:
            cost = micro["user"][key]
            bounds.append(Bound(subject, bound, f"{cost / 1e3:.2f} µs", cost <= scaled))
    return bounds


def _full(results: Json) -> Bound:
    size = results["options"]["size"]
    blocks = results.get("steady_reference", {}).get("blocks")
    found = ratio(*rounds_of(blocks, "full", "bare")) if blocks else _ratio(results, "reference", "full")
    return _at_most(f"reference ({size}), full config, all sinks", 1.01, found, digits=3, sign="")


def _sinks(results: Json) -> Bound:
    blocks = _steady_blocks(results)
    cost = cost_ratio(*rounds_of(blocks, "full", "record_both", "bare")) if blocks else None
    return _at_most("every step recorded, all default sinks: cost over recording alone", 2.0, cost)


def _worst(results: Json) -> list[Bound]:
    worst = results.get("worst")
    labels = {"session": "without sinks", "sinks": "with all sinks"}
    if worst is None:
        return [_missing(f"steps > 5 × median by its doing, {text}", "0") for text in labels.values()]
    bounds = []
    for lane, text in labels.items():
        tail, bare = worst[lane], worst["bare"]
        measured = f"{tail['slow_own']} in {tail['steps']:,} ({tail['slow']} slow, bare {bare['slow']})"
        bounds.append(Bound(f"steps > 5 × median by its doing, {text}", "0", measured, tail["slow_own"] == 0))
    left = worst["survivors"]["session"] - worst["survivors"]["bare"]
    bounds.append(Bound("objects for the collector left by a step", "0", f"{left:.2f}", left < 0.01))
    return bounds


def _long(results: Json) -> list[Bound]:
    memory = results.get("memory")
    bounds = []
    for path, text in (("engine", "engine"), ("sinks", "engine and all sinks")):
        subject = f"memory from step 10,000 on, {text}"
        if memory is None:
            bounds.append(_missing(subject, "± 1 MB"))
            continue
        first, last = memory[path][0], memory[path][-1]
        grown = last["rss_bytes"] - first["rss_bytes"]
        measured = f"{grown / MIB:+.2f} MiB at step {last['steps']:,}"
        bounds.append(Bound(subject, "≤ 1 MB", measured, grown <= MIB))
    return bounds


def _rest(results: Json) -> list[Bound]:
    micro, identical = results.get("micro"), results.get("identical")
    imported, same = "import autoprof, on top of import torch", "same bits, checkpointing on and off"
    bounds = []
    if micro is None:
        bounds.append(_missing(imported, "≤ 0.15 s"))
    else:
        seconds = micro["imports"]["autoprof_s"]
        bounds.append(Bound(imported, "≤ 0.15 s", f"{seconds:.3f} s", seconds <= 0.15))
    if identical is None:
        bounds.append(_missing(same, "all equal"))
    else:
        equal = sum(case["identical"] for case in identical.values())
        tensors = sum(case["tensors"] for case in identical.values())
        bounds.append(
            Bound(same, "all equal", f"{equal} of {len(identical)}, {tensors:,} tensors", equal == len(identical))
        )
    return bounds
