"""The bounds of autoprof's cost, and whether the measured figures keep them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any, Final

from .stats import ENOUGH, Estimate, cost_ratio, ratio, rounds_of

CLOCK_NS: Final = 50.0
"""The cost of ``perf_counter_ns`` for which the bounds on single calls are stated; they scale with the machine's."""

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
        *(Bound(**bound) for bound in results.get("always_on", {}).get("bounds", ())),
        *_states(results),
        *_calls(results),
        _over_full_hooks(results),
        *_rest(results),
    ]


def _missing(subject: str, bound: str) -> Bound:
    return Bound(subject, bound, "not measured", None)


def at_most(subject: str, limit: float, measured: Estimate | None, *, digits: int = 2, sign: str = "×") -> Bound:
    """Compare an estimate with its upper limit."""
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


def _ratio(results: Json, workload: str, variant: str) -> Estimate | None:
    blocks = _blocks(results, workload)
    if variant not in blocks or "bare" not in blocks:
        return None
    return ratio(*rounds_of(blocks, variant, "bare"))


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
    return [*bounds, at_most(f"attached, not sampling, reference ({size})", 1.005, idle, digits=3, sign="")]


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


def _over_full_hooks(results: Json) -> Bound:
    blocks, names = _blocks(results, "layers"), ("session_both", "full_backward_hook", "bare")
    cost = cost_ratio(*rounds_of(blocks, *names)) if all(name in blocks for name in names) else None
    return at_most("both, over register_full_backward_hook", 1 / 3, cost)


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
