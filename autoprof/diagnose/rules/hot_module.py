"""Rule ``hot-module``: a module takes far longer than its like siblings, or than its part of the arithmetic explains.

A module that only holds others is the sum of its blocks, and a long module with much arithmetic does its work. So only
a module's own time counts, and only against others: blocks of the same structure, or the FLOPs of the whole model.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from statistics import median
from typing import Final, NamedTuple

from ..._stats.intervals import Interval
from ..._units import format_ms, format_percent
from ...frame import TRAINING_LANE, Phase
from ...summary import Finding, Row
from .._contention import FIRM, QUIET, is_crowded
from .._evidence import Evidence
from .._experiment import edit_module
from .._rule import Rule
from .._thresholding import abstain, classify, inconclusive

MAX_TIMES: Final = 3.0
"""Blocks of one structure differ by some percent; three times as long is another cause than the structure."""
MIN_EXCESS: Final = 0.1
"""The least excess over the siblings, as a share of the step."""
MIN_SIBLINGS: Final = 3
MAX_NAME_SHARE: Final = 0.5
"""A name given by hand that takes half of the step determines its length."""
MIN_SHARE: Final = 0.4
"""Own time over the step, from which a module with next to no arithmetic is named."""
MAX_SLOWER: Final = 50.0
"""Times as long per FLOP as the rest of the model. Depthwise convolutions, the slowest arithmetic of the models of
``benchmarks/results/hot_path.md``, take up to 20 times as long as products of matrices."""
MIN_FORWARD_EXCESS: Final = 0.15
"""Share of the step by which a module's forward is longer than its backward. Backward takes twice as long in theory,
and hardly ever less: it follows every operation of forward. So the excess is code without gradients, and an expert
calls a run healthy when at least 85 % of it is explained."""
SAME_BYTES: Final = 0.01
_NUMBER: Final = re.compile(r"\d+")


class OwnTime(NamedTuple):
    """The own time of one name in a step, over the phases of its calls, with its longest row."""

    name: str
    parent: str | None
    ns: Interval
    row: Row
    calls: float

    @property
    def is_group(self) -> bool:
        """Whether it is the sum of several blocks of one structure, such as ``h.*``."""
        return "*" in self.name


def judge(run: Evidence) -> Finding | None:
    """Compare each module with its like siblings, then the one with most own time with the rest of the model."""
    own = _own_times(run)
    if len(own) < 2:
        return abstain("hot-module", "spans of two modules side by side", "name the model's children as targets")
    if not run.facts.has_model:
        return _judge_names(run, own)
    return _judge_siblings(run, own) or _judge_work(run, own) or _judge_forward(run, own)


def _own_times(run: Evidence) -> list[OwnTime]:
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in run.summary.rows:
        in_module = row.phase.traits.in_module or not run.facts.has_model
        if row.lane == TRAINING_LANE and row.fqn is not None and in_module:
            rows[row.name].append(row)
    found = []
    for name, several in rows.items():
        longest = max(several, key=lambda row: row.self_ns)
        calls = max(row.calls / max(row.steps, 1) for row in several)
        found.append(OwnTime(name, longest.parent, run.self_time(several), longest, calls))
    return found


def _judge_names(run: Evidence, own: list[OwnTime]) -> Finding | None:
    """Find the name that dominates, where names are given by hand and nothing is known of the arithmetic in them."""
    hot, beside, *_ = sorted(own, key=lambda one: (-one.ns.middle, one.name))
    share, times = hot.ns.over(run.step_time), hot.ns.over(beside.ns)
    evidence = {"share": round(share.middle, 4), "times_next": round(times.middle, 2), "next": beside.name}
    evidence["bound"] = MAX_NAME_SHARE
    positions = {classify(share, MAX_NAME_SHARE), classify(times, MAX_TIMES)}
    if "below" in positions:
        return None
    if "near" in positions:
        return inconclusive("hot-module", share, MAX_NAME_SHARE, evidence)
    return Finding(
        "hot-module",
        "warning",
        f"{hot.name} takes {format_percent(share.middle)} of the step, {times.middle:.1f} x as long as {beside.name}, "
        "the longest name beside it",
        "look there first: time its parts under names of their own; the possible gain was not measured",
        hot.name,
        hot.row.phase,
        evidence={**evidence, "steps": run.summary.steps},
    )


def _judge_siblings(run: Evidence, own: list[OwnTime]) -> Finding | None:
    """Find the module that takes much longer than the others whose names differ only in their numbers."""
    groups: dict[tuple[str, str], list[OwnTime]] = defaultdict(list)
    for one in own:
        groups[_NUMBER.sub("*", one.name), _NUMBER.sub("*", one.parent or "")].append(one)
    held = {row.name: row.parameter_bytes for row in run.summary.memory_table}
    worst: tuple[float, OwnTime, list[Interval]] | None = None
    for group in groups.values():
        hot = max((one for one in group if not one.is_group), key=lambda one: one.ns.middle, default=None)
        if hot is None:
            continue
        others = [ns for one in group if one is not hot for ns in _siblings(held, hot, one)]
        if len(others) < MIN_SIBLINGS - 1:
            continue
        excess_ns = hot.ns.middle - median(ns.middle for ns in others)
        if worst is None or excess_ns > worst[0]:
            worst = excess_ns, hot, others
    if worst is None:
        return None
    excess_ns, hot, others = worst
    usual = Interval(*(max(median(ns[at] for ns in others), 1.0) for at in range(3)))
    times = hot.ns.over(usual)
    share = Interval(*(max(part - usual.middle, 0.0) for part in hot.ns)).over(run.step_time)
    evidence = {
        "times": round(times.middle, 2),
        "bound": MAX_TIMES,
        "share": round(share.middle, 4),
        "siblings": len(others),
        "usual_ns": round(usual.middle),
        "steps": run.summary.steps,
    }
    positions = {classify(times, MAX_TIMES), classify(share, MIN_EXCESS)}
    if "below" in positions:
        return None
    if "near" in positions:
        return inconclusive("hot-module", share, MIN_EXCESS, evidence)
    if is_crowded(run) and times.low < FIRM * MAX_TIMES:
        return abstain("hot-module", QUIET, "stop them and measure again", evidence)
    return Finding(
        "hot-module",
        "warning",
        f"{hot.name} takes {format_ms(hot.ns.middle)} of its own, {times.middle:.1f} x as long as its {len(others)} "
        f"siblings of the same structure ({format_ms(usual.middle)} each)",
        f"compare {hot.name} with its siblings: other inputs (longer, another dtype or memory format), a hook, a copy "
        "or code that only it runs",
        hot.name,
        hot.row.phase,
        gain_ns=round(excess_ns),
        evidence=evidence,
    )


def _siblings(held: Mapping[str | None, int | None], hot: OwnTime, other: OwnTime) -> list[Interval]:
    """Return the times of modules with the same parameters, as far as they are counted: of each block of a group.

    ``held`` has the bytes of the parameters by name.
    """
    count = max(round(other.calls / max(hot.calls, 1.0)), 1) if other.is_group else 1
    mine, theirs = held.get(hot.name), held.get(other.name)
    if mine is not None and theirs is not None and abs(mine - theirs / count) > SAME_BYTES * max(mine, theirs / count):
        return []
    return [Interval(*(part / count for part in other.ns))] * count


def _judge_work(run: Evidence, own: list[OwnTime]) -> Finding | None:
    """Judge the module with the most own time by its part of the counted FLOPs."""
    hot = max(own, key=lambda one: (one.ns.middle, one.name))
    share, work = hot.ns.over(run.step_time), run.summary.work
    if classify(share, MIN_SHARE) != "above":
        return None
    if work is None or work.reason is not None:
        return None
    counted = {row.name: sum(row.flops.values()) for row in work.rows}
    total = sum(work.flops.values())
    inside = sum(counted.get(one.name, 0) for one in own if one.parent == hot.name and one.name != hot.name)
    if hot.name not in counted or not total:
        return None
    flops = max(counted[hot.name] - inside, 0)
    rest_ns = sum(one.ns.middle for one in own if one is not hot)
    rest_rate, rate = (total - flops) / max(rest_ns, 1.0), flops / max(hot.ns.middle, 1.0)
    if rate * MAX_SLOWER > rest_rate:
        return None
    gain_ns = hot.ns.middle - flops / max(rest_rate, 1e-12)
    return Finding(
        "hot-module",
        "warning",
        f"{hot.name} itself takes {format_percent(share.middle)} of the step and has "
        f"{format_percent(flops / total)} of the model's FLOPs: its time is not spent on arithmetic"
        f"{_lines(run, hot, share)}",
        "look at the code of its forward outside of the modules in it: loops in Python, copies, indexing, waits, values"
        " read to Python; use operators on whole tensors",
        hot.name,
        hot.row.phase,
        gain_ns=round(gain_ns),
        evidence={
            "share": round(share.middle, 4),
            "bound": MIN_SHARE,
            "flops_share": round(flops / total, 5),
            "steps": run.summary.steps,
        },
    )


def _judge_forward(run: Evidence, own: list[OwnTime]) -> Finding | None:
    """Find the module that holds others and in whose own forward much happens that backward has no part in."""
    forward = {row.name: row for row in run.rows.get(Phase.FORWARD, [])}
    backward = {row.name: row for row in run.rows.get(Phase.BACKWARD, [])}
    holding = {row.parent for row in forward.values()}
    worst: tuple[Interval, OwnTime] | None = None
    for one in own:
        if one.name not in holding or one.name not in backward or one.row.phase is not Phase.FORWARD:
            continue
        there, back = run.row_time(forward[one.name]), run.row_time(backward[one.name])
        itself = run.self_time([forward[one.name]])
        excess = Interval(*(min(itself[at], there[at] - back[2 - at]) for at in range(3)))
        if worst is None or excess.middle > worst[0].middle:
            worst = excess, one
    if worst is None:
        return None
    excess, hot = worst
    share = Interval(*(max(part, 0.0) for part in excess)).over(run.step_time)
    evidence = {
        "share": round(share.middle, 4),
        "share_low": round(share.low, 4),
        "bound": MIN_FORWARD_EXCESS,
        "steps": run.summary.steps,
    }
    position = classify(share, MIN_FORWARD_EXCESS)
    if position != "above":
        return inconclusive("hot-module", share, MIN_FORWARD_EXCESS, evidence) if position == "near" else None
    forward_ns, backward_ns = (rows[hot.name].total_ns / run.summary.steps for rows in (forward, backward))
    return Finding(
        "hot-module",
        "warning",
        f"the forward of {hot.name} takes {format_ms(forward_ns)}, its backward {format_ms(backward_ns)}: at least "
        f"{format_ms(excess.middle)} "
        f"({format_percent(share.middle)} of the step) in its own code are not part of the model's arithmetic"
        f"{_lines(run, hot, share)}",
        "look in its forward and its hooks, outside of the modules in it, for masks built in Python, statistics, "
        "sorting, printing or copies: compute them once, or not in every step",
        hot.name,
        Phase.FORWARD,
        gain_ns=round(excess.middle),
        evidence=evidence,
    )


def _lines(run: Evidence, hot: OwnTime, share: Interval) -> str:
    """Return the clause that names the lines in the module's longest phase; empty where they were not sampled."""
    table = run.facts.stacks.get(f"{hot.row.phase} {hot.name}")
    if table is None or not table.named:
        return ""
    part = hot.row.self_ns / max(hot.row.steps, 1) / max(hot.ns.middle, 1.0)
    return f"; {table.describe(min(part, 1.0) * share.middle)}"


RULE = Rule(
    "hot-module",
    judge,
    order=50,
    experiment=edit_module,
)
