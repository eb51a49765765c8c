"""Rules on the model: a lopsided backward, one module that takes it all, a device that waits for the host."""

from __future__ import annotations

from collections import Counter

from .._stats.name_lines import Line, name_lines
from .._units import format_ms, format_percent
from ..frame import TRAINING_LANE, Phase
from ..summary import Finding, Row
from .evidence import Evidence, Interval
from .thresholding import Weighed, abstain, near, stand, weigh
from .thresholds import BACKWARD_HIGH, BACKWARD_RATIO, BACKWARD_SHARE, BUSY, HOT_SHARE, HOT_TIMES, LAUNCH_SHARE


def backward_ratio(seen: Evidence) -> Finding | None:
    """A backward much longer than twice its forward, over the modules of which both were seen."""
    forward, backward = (seen.rows.get(phase, []) for phase in (Phase.FORWARD, Phase.BACKWARD))
    both = {row.name for row in forward} & {row.name for row in backward}
    if not both:
        return abstain("backward-ratio", "modules with both forward and backward spans", "name modules as targets")
    there = [row for row in forward if row.name in both]
    back = [row for row in backward if row.name in both]
    ratio, taken = seen.own(back).over(seen.own(there)), seen.own(back)
    if stand(taken.over(seen.step), BACKWARD_SHARE) == "below":
        return None
    standing = stand(ratio, BACKWARD_HIGH)
    facts = {"ratio": round(ratio.middle, 2), "ratio_low": round(ratio.low, 2), "ratio_high": round(ratio.high, 2)}
    if standing == "below":
        return None
    if standing == "near":
        missing = f"inconclusive: backward is {ratio.low:.1f} to {ratio.high:.1f} x forward, near {BACKWARD_HIGH:.0f} x"
        return abstain("backward-ratio", missing, "more recorded steps narrow the interval", facts)
    steps = seen.summary.steps
    excess = {name: _own(back, name) - BACKWARD_RATIO * _own(there, name) for name in both}
    worst = max(excess, key=lambda name: (excess[name], name))
    times = _own(back, worst) / max(_own(there, worst), 1)
    return Finding(
        "backward-ratio",
        "warning",
        f"backward takes {ratio.middle:.1f} x forward; {BACKWARD_RATIO:.0f} x is usual. Most of it: {worst}, "
        f"{times:.1f} x, {format_ms(excess[worst] / steps)} a step above that",
        "look for indexing, scatter or a custom autograd function in that module: their backward adds up where "
        "forward only reads",
        worst,
        Phase.BACKWARD,
        gain_ns=max(round(taken.middle - BACKWARD_RATIO * seen.own(there).middle), 0),
        evidence={**facts, "steps": steps},
    )


def _own(rows: list[Row], name: str) -> int:
    return sum(row.self_ns for row in rows if row.name == name)


def hot_module(seen: Evidence) -> Finding | None:
    """One module that takes half of the step and several times as long as the longest beside it."""
    if not _may_be_hot(seen):
        return None
    modules = [line for line in name_lines(seen.summary).roots if _is_module(line)]
    while len(modules) == 1 and (inner := _modules_in(modules[0])):
        modules = inner
    if len(modules) < 2:
        return abstain("hot-module", "spans of two modules beside one another", "name the model's children as targets")
    hot, beside = _hottest(modules)
    while len(inner := _modules_in(hot)) >= 2:  # what is hot inside what is hot says more
        deeper, next_to = _hottest(inner)
        if not _dominates(seen, deeper, next_to):
            break
        hot, beside = deeper, next_to
    share = _share(seen, hot)
    times = _times(seen, hot, beside)
    facts = {
        "share": round(share.middle, 4),
        "times_next": round(times.middle, 2),
        "next": beside.name,
        "bound": HOT_SHARE,
    }
    if stand(times, HOT_TIMES) == "below" or stand(share, HOT_SHARE) == "below":
        return None
    if not _dominates(seen, hot, beside):
        return near("hot-module", share, HOT_SHARE, facts)
    return Finding(
        "hot-module",
        "warning",
        f"{format_percent(share.middle)} of the step are in {hot.name}, {times.middle:.1f} x as long as {beside.name}, "
        "the longest beside it",
        "look there first: make its children targets to see which part it is; what can be won there was not measured",
        hot.name,
        max(hot.rows, key=lambda row: row.total_ns).phase,
        evidence={**facts, "ns": hot.total_ns // seen.summary.steps, "steps": seen.summary.steps},
    )


def _may_be_hot(seen: Evidence) -> bool:
    """Say whether the tree is worth making: it costs more than all other rules, and mostly no name takes so much."""
    by_name: Counter[str] = Counter()
    for row in seen.summary.rows:
        if row.lane == TRAINING_LANE and row.fqn is not None:
            by_name[row.name] += row.total_ns
    return len(by_name) < 2 or 2 * max(by_name.values()) > HOT_SHARE * seen.summary.total_step_ns


def _is_module(line: Line) -> bool:
    return any(row.fqn is not None for row in line.rows)


def _modules_in(line: Line) -> list[Line]:
    return [child for child in line.children if _is_module(child)]


def _hottest(modules: list[Line]) -> tuple[Line, Line]:
    first, second, *_ = sorted(modules, key=lambda line: (-line.total_ns, line.name))
    return first, second


def _dominates(seen: Evidence, hot: Line, beside: Line) -> bool:
    far = stand(_times(seen, hot, beside), HOT_TIMES) == "above"
    return far and stand(_share(seen, hot), HOT_SHARE) == "above"


def _times(seen: Evidence, hot: Line, beside: Line) -> Interval:
    """Return how many times as long as the other line one is."""
    mine, theirs = _share(seen, hot), _share(seen, beside)
    low, middle, high = (max(part, 1e-9) for part in theirs)
    return Interval(mine.low / high, mine.middle / middle, mine.high / low)


def _share(seen: Evidence, line: Line) -> Interval:
    """Return the line's share of the step, as uncertain as its longest row."""
    longest = max(line.rows, key=lambda row: row.total_ns)
    row, share = seen.row(longest).over(seen.step), line.total_ns / max(seen.summary.total_step_ns, 1)
    middle = max(row.middle, 1e-9)
    return Interval(share * row.low / middle, share, share * row.high / middle)


def launch_bound(seen: Evidence) -> Finding | None:
    """A device whose queue is empty for a good part of the step, the wait for data apart."""
    if seen.summary.clock != "device":
        return abstain("launch-bound", "a device's clock", "nothing to do where the model trains on the CPU")
    outer = [row for row in seen.summary.rows if row.parent is None and row.lane == 0 and row.phase is not Phase.DATA]
    bound = [(row, row.host_bound * row.total_ns) for row in outer if row.host_bound is not None]
    if not bound:
        return abstain("launch-bound", "spans with the queue's lead", "name the model's modules as targets")
    ns = sum(part for _, part in bound) / seen.summary.steps
    low, middle, high = seen.step
    scaled = Interval(ns * low / max(middle, 1), ns, ns * high / max(middle, 1))
    weighed = weigh("launch-bound", seen, scaled, ns, LAUNCH_SHARE)
    if not isinstance(weighed, Weighed):
        return weighed
    worst = max(bound, key=lambda one: (one[1], one[0].name))[0]
    use = seen.summary.metrics.get("gpu_utilization")
    if use is not None and use.mean >= BUSY:  # the queue ran short, and the device did not stand still for it
        share, busy = format_percent(weighed.mean_share), format_percent(use.mean)
        missing = f"inconclusive: the queue was empty for {share} of the step, yet NVML saw the device busy {busy}"
        return abstain("launch-bound", missing, "nothing to do while the device is busy", weighed.evidence)
    busy = "" if use is None else f"; NVML saw the device busy for {format_percent(use.mean)} of the time"
    return weighed.finding(
        f"for {format_percent(weighed.mean_share)} of the step the device's queue was empty and the host set the "
        f"pace: at most so much is waiting for launches (or for a reading of a value){busy}",
        "a larger batch, torch.compile (mode='reduce-overhead' replays CUDA graphs), fused operators; read no values "
        "(.item(), .cpu(), print) within the step",
        name=worst.name,
        evidence={} if use is None else {"gpu_utilization": round(use.mean, 3)},
    )
