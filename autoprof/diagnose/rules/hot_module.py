"""Rule ``hot-module``: a module takes far longer than its like siblings, or than its own work explains.

A module that only holds others is the sum of its blocks, and a long module with much arithmetic does its work. So only
a module's own time counts, against blocks of the same structure, or against the time that its work should take.

Finds, above a bound:

- a module whose own time is far longer than that of siblings of the same structure; one that takes and returns larger
  tensors may take as many times longer, with more operations up to the square: 3 x, and 10 % of the step more.
- a module or span that is long in some steps only, with their rhythm, or takes longer from quarter to quarter, beyond
  the time that the steps' larger inputs explain: 10 % of the run.
- one that takes several times as long as its work explains: its FLOPs, the bytes that its operators read and write,
  and their number, at the rates of the slowest kinds of operators, or of the other modules where these are slower: 3
  x, and 10 % of the step beyond its work; 40 % where the number of operators explains it.
- one of the program's own classes whose forward takes longer than its backward: masks, statistics or hooks in its own
  code: 15 % of the step more.
- one of the program's own classes without backward and without FLOPs: 40 % of the step.
- a cell of a recurrent layer that a loop calls for each element of a sequence: 10 % of the step.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Final, NamedTuple

from ..._capture.hooks.sizes import ModuleSize
from ..._core.units import count, format_bytes, format_flops, format_ms, format_percent
from ..._stats.intervals import Interval
from ..._stats.rows import RowKey, step_rows
from ...frame import BACKWARD_NAME, MODULE_PHASES, TRAINING_LANE, Phase
from ...summary import Finding, Row, SlowestMember
from .. import Evidence, ExceededBound, LongStep, Rule, abstain, classify, edit_module, inconclusive, threshold_time
from .._bounds import MAX_UNEXPLAINED, MIN_SHARE, NEARLY_ALL, SEVERAL
from .._contention import SPREAD, is_crowded
from .._evidence import GRADIENT_HOOKS, SHARED_NAME, RowCost
from .._long_steps import collection_cause, is_named_elsewhere
from .._python_threads import BUSY_CORES
from .._thresholding import rare_evidence, rare_time, share_evidence

MIN_SMALL_SHARE: Final = 0.4
"""Own time over the step, from which a module of many small operators is named, or one whose work is not counted: small
models are launched for a good part of the step, and nothing is wrong with them."""

DENORMAL: Final = "values near zero (denormal numbers take many times longer: torch.set_flush_denormal)"
"""Part of the advice on a module that takes long without much arithmetic."""

DETACH: Final = (
    "detach the state that a step passes to the next one (state = state.detach()): its graph reaches back through all "
    "earlier steps, and backward goes through them again"
)
IN_ITS_CODE: Final = (
    "look at the code of its forward outside of the modules in it: loops in Python, copies, indexing, waits, values "
    f"read to Python, {DENORMAL}; use operators on whole tensors"
)
MANY_CALLS: Final = 4
"""Calls of a module in a step from which on it is called in a loop."""
IN_PIECES: Final = (
    "compute the whole batch, sequence or all heads in one operator in place of a loop in Python (torch.stack, "
    "torch.func.vmap, nn.LSTM or nn.GRU for a cell), or compile the loop"
)

_NUMBER: Final = re.compile(rf"{SHARED_NAME.pattern}|\d+")
_OWNED: Final = {Phase.DATA, Phase.H2D, Phase.COMM, Phase.OPTIMIZER}
"""Phases with a rule of their own."""


class OwnTime(NamedTuple):
    """The own time of one name in a step, over the phases of its calls, with its longest row."""

    name: str
    ns: Interval
    row: Row


class SlowSibling(NamedTuple):
    """A module beside others of its structure: how many times as long it takes as their median, and how much longer."""

    module: str
    row: Row
    times: Interval
    excess: Interval
    siblings: int
    explained: float
    """How many times as long as the median the sizes of its tensors explain."""


def judge(run: Evidence) -> Finding | None:
    """Compare each module with its like siblings, then the one with most own time with the rest of the model."""
    own = _own_times(run)
    found = _judge_rare(run) or _judge_growth(run)
    if found is not None:
        return found
    if len(own) < 2:
        return abstain("hot-module", "spans of two modules side by side", "name the model's children as targets")
    judges = _judge_siblings, _judge_work, _judge_forward, _judge_without_gradient, _judge_cell
    return next((found for judged in judges if (found := judged(run, own)) is not None), None)


def _own_times(run: Evidence) -> list[OwnTime]:
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in run.summary.rows:
        if row.lane == TRAINING_LANE and row.fqn is not None and row.phase.traits.in_module:
            rows[row.name].append(row)
    found = []
    for name, several in rows.items():
        longest = max(several, key=lambda row: row.self_ns)
        found.append(OwnTime(name, run.self_time(several), longest))
    return found


def _judge_rare(run: Evidence) -> Finding | None:
    """Find the module or span that is long in some steps only, by the sum over the run."""
    found = []
    for phase in () if run.facts.trains_copy else run.rows.keys() - _OWNED:
        rare = rare_time(run, phase)  # of a module's phases together
        if rare is not None and classify(rare.share, MIN_SHARE) == "above":
            found.append((rare, MODULE_PHASES if phase.traits.in_module else (phase,)))
    if not found:
        return None
    rare, phases = max(found, key=lambda one: one[0].share.middle)
    long = [step for step in run.longest if step.step in rare.steps]
    causes = [(step, _innermost_cause(run, step, rare.excess_ns, phases)) for step in long]
    # Without a pattern, more calls are more work, as where a model chooses its depth for each batch.
    names = Counter(
        cause
        for step, cause in causes
        if cause is not None
        and cause[0] != BACKWARD_NAME
        and (rare.has_pattern or not _is_called_more(run, step, *cause))
    )
    gain_ns = round(rare.share.middle * run.summary.step_mean_ns)
    if not names or collection_cause(run, long) is not None or is_named_elsewhere(run, long, gain_ns):
        return None
    name, phase = names.most_common(1)[0][0]
    return Finding(
        "hot-module",
        "warning",
        f"{name} takes {format_ms(rare.excess_ns)} in {rare.when} beyond its time in the others: "
        f"{format_percent(rare.share.middle)} of the run",
        f"look at the work that {name} does only in these steps: do it less often, or make it cheaper",
        name,
        phase,
        gain_ns=gain_ns,
        evidence=rare_evidence(rare, MIN_SHARE, run.summary.steps),
    )


def _judge_growth(run: Evidence) -> Finding | None:
    """Find the module that takes longer from quarter to quarter of the run."""
    growth = None if run.facts.trains_copy else run.series.growth(MODULE_PHASES, run.facts.explained)
    if growth is None or classify(growth.share, MIN_SHARE) != "above":
        return None
    if growth.elsewhere >= SPREAD and is_crowded(run):
        return None
    last_ns = growth.last_ns - growth.first_ns
    names = Counter(filter(None, (_innermost_cause(run, step, last_ns, MODULE_PHASES) for step in run.longest)))
    if not names:
        return None
    name, phase = names.most_common(1)[0][0]
    first, last = format_ms(growth.first_ns), format_ms(growth.last_ns)
    share = format_percent(growth.share.middle)
    return Finding(
        "hot-module",
        "warning",
        f"forward and backward get longer: from {first} in the first quarter of the run to {last} in the last one, "
        f"most of it in {name}; the excess over the first quarter is {share} of the run",
        DETACH
        if name == BACKWARD_NAME
        else f"look for inputs of {name} that grow, or values that it keeps and goes through in each step",
        name,
        phase,
        gain_ns=round(growth.excess_ns),
        evidence=share_evidence(growth.share, MIN_SHARE, run.summary.steps),
    )


def _innermost_cause(
    run: Evidence, step: LongStep, excess_ns: float, phases: tuple[Phase, ...]
) -> tuple[str, Phase] | None:
    """Return the innermost name that alone has half of a step's excess, with its longest phase."""
    usual = {
        (row.name, row.phase): row.min_ns
        for row in run.summary.rows
        if row.lane == TRAINING_LANE and row.steps >= 0.9 * run.summary.steps
    }
    rows = step_rows(step.layout)
    extra: dict[str, dict[Phase, int]] = defaultdict(dict)
    for key, ns in zip(rows.keys, rows.totals(step.total_ns).tolist(), strict=True):
        if key.lane == TRAINING_LANE and key.phase in phases:
            extra[key.name][key.phase] = ns - usual.get((key.name, key.phase), 0)
    having = {name for name, by_phase in extra.items() if 2 * sum(by_phase.values()) >= excess_ns}
    holding = set()
    for row, key in enumerate(rows.keys):
        while key.name in having and (row := rows.parents[row]) >= 0:
            if rows.keys[row].name != key.name:
                holding.add(rows.keys[row].name)
    name = max(having - holding, key=lambda one: sum(extra[one].values()), default=None)
    return None if name is None else (name, max(extra[name], key=extra[name].__getitem__))


def _is_called_more(run: Evidence, step: LongStep, name: str, phase: Phase) -> bool:
    """Return whether a step calls a row more often than the mean step."""
    rows = step_rows(step.layout)
    calls = int(rows.calls[rows.keys.index(RowKey(name, phase, TRAINING_LANE))])
    return any(row.name == name and calls * row.steps > row.calls for row in run.rows.get(phase, []))


def _judge_siblings(run: Evidence, own: list[OwnTime]) -> Finding | None:
    """Find the module that takes much longer than the others of its structure."""
    work = _flops_of_names(run)
    slow = max([*_slow_rows(run, own, work), *_slow_members(run)], key=lambda one: one.excess.middle, default=None)
    position = "below" if slow is None else classify(slow.times, SEVERAL * slow.explained)
    if slow is None or position == "below":
        return None
    found = threshold_time("hot-module", run, slow.excess, slow.excess.middle, MIN_SHARE, slow.row.phase)
    if not isinstance(found, ExceededBound):
        return found
    if position == "near":
        return inconclusive("hot-module", found.share, MIN_SHARE, found.evidence)
    size = run.size(slow.module if slow.module != slow.row.name else slow.row.fqn)
    hooked = size is not None and size.has_hooks and slow.row.phase is Phase.BACKWARD
    larger = "" if slow.explained <= 1.05 else f" (its larger tensors explain {slow.explained:.1f} x)"
    return found.finding(
        f"{slow.module} takes {slow.times.middle:.1f} x as long as the median of its {slow.siblings} siblings of the "
        f"same structure{larger}: {format_ms(slow.excess.middle)} more in each step",
        GRADIENT_HOOKS
        if hooked
        else f"compare {slow.module} with its siblings: other inputs (longer, another dtype or memory format), a hook, "
        "a copy or code that only it runs",
        name=slow.row.name,
        evidence={
            "times": round(slow.times.middle, 2),
            "siblings": slow.siblings,
            **({} if slow.module == slow.row.name else {"module": slow.module}),
        },
    )


def _flops_of_names(run: Evidence) -> dict[str, float]:
    """Return the operations of each name outside of the names in it; empty where they are not counted."""
    found: dict[str, float] = defaultdict(float)
    for (name, _), cost in run.costs.items():
        found[name] += cost.work.flops
    return dict(found)


def _explained_times(passed: float, flops: float | None) -> float:
    """Return how many times as long as another module of its structure one may take by the sizes of its tensors.

    Most operators take time in proportion to their tensors, attention in proportion to the square of the length: more
    operations count up to the square of ``passed``. Further ones are other code, which size does not explain.
    """
    sizes = max(passed, 1.0)
    return max(sizes, min(sizes**2 if flops is None else flops, sizes**2))


def _slow_rows(run: Evidence, own: list[OwnTime], flops: Mapping[str, float]) -> Iterator[SlowSibling]:
    """Yield the longest of each group of modules whose names differ only in their numbers."""
    groups: dict[tuple[str, str], list[OwnTime]] = defaultdict(list)
    for one in own:
        groups[_NUMBER.sub("*", one.name), _NUMBER.sub("*", one.row.parent or "")].append(one)
    held = {row.name: row.parameter_bytes for row in run.summary.memory_table}
    for group in groups.values():
        hot = max(group, key=lambda one: one.ns.middle / _members(one))
        alike = [one for one in group if one is not hot and _is_alike(run, held, hot, one)]
        others = [Interval(*(part / _members(one) for part in one.ns)) for one in alike for _ in range(_members(one))]
        if len(others) >= 2 and _members(hot) == 1:
            usual = Interval(*(max(median(ns[at] for ns in others), 1.0) for at in range(3)))
            explained = _explained_times(_passed_over(run, hot, alike), _flops_over(flops, hot, alike))
            excess = Interval(*(max(part - explained * usual.middle, 0.0) for part in hot.ns))
            yield SlowSibling(hot.name, hot.row, hot.ns.over(usual), excess, len(others), explained)


def _flops_over(flops: Mapping[str, float], hot: OwnTime, alike: list[OwnTime]) -> float | None:
    """Return the operations of a module over the median of its siblings; None where either is unknown."""
    usual = [flops[one.name] / _members(one) for one in alike if one.name in flops for _ in range(_members(one))]
    return flops[hot.name] / median(usual) if hot.name in flops and usual and median(usual) else None


def _passed_over(run: Evidence, hot: OwnTime, alike: list[OwnTime]) -> float:
    """Return the bytes that a call of a module passes over the median of its siblings; 1 where they are unknown."""
    mine, others = _size(run, hot), [size for one in alike if (size := _size(run, one)) is not None]
    return mine.passed_bytes / max(median(one.passed_bytes for one in others), 1) if mine and others else 1.0


def _size(run: Evidence, one: OwnTime) -> ModuleSize | None:
    return run.size(one.row.fqn)


def _is_alike(run: Evidence, held: Mapping[str | None, int | None], hot: OwnTime, other: OwnTime) -> bool:
    """Return whether two modules have as many bytes of parameters (``held``), or one class where they have none."""
    mine, theirs = held.get(hot.name), held.get(other.name)
    if not mine and not theirs:
        kinds = {size.kind for one in (hot, other) if (size := _size(run, one)) is not None}
        return len(kinds) < 2
    if mine is None or theirs is None:
        return True
    each = theirs / _members(other)
    return abs(mine - each) <= 0.01 * max(mine, each)


def _members(one: OwnTime) -> int:
    """Return how many modules share a row, ``layers.*`` or ``0-5``, by the calls of a step; 1 for a row of its own."""
    return max(round(one.row.calls / max(one.row.steps, 1)), 1) if SHARED_NAME.search(one.name) else 1


def _slow_members(run: Evidence) -> Iterator[SlowSibling]:
    """Yield the slowest module of the rows that several modules share.

    Of a slow block and the slow part of it, the part: it has nearly all of the block's excess.
    """
    rows: dict[str, list[tuple[Row, SlowestMember]]] = defaultdict(list)
    for row in run.summary.rows:
        if row.lane == TRAINING_LANE and row.slowest is not None and row.slowest.times >= SEVERAL:
            rows[row.slowest.fqn].append((row, row.slowest))
    excess = {fqn: sum(one.excess_ns for _, one in found) for fqn, found in rows.items()}
    longest_ns = max(excess.values(), default=0)
    fqn = max((fqn for fqn, ns in excess.items() if ns >= NEARLY_ALL * longest_ns), key=len, default=None)
    if fqn is not None:
        row, slowest = max(rows[fqn], key=lambda one: one[0].total_ns)
        times = max(one.times for _, one in rows[fqn])
        explained = _explained_times(*_slowest_over(run, fqn, row.name))
        usual_ns = excess[fqn] / max(times - 1, 1)
        excess_ns = Interval.exact(max(excess[fqn] - (explained - 1) * usual_ns, 0.0))
        yield SlowSibling(fqn, row, Interval.exact(times), excess_ns, slowest.members - 1, explained)


def _slowest_over(run: Evidence, fqn: str, name: str) -> tuple[float, float | None]:
    """Return the bytes passed by, and the operations of, the slowest member of a name over those of the median one."""
    work, sizes, like = run.summary.work, run.facts.sizes, _NUMBER.sub("*", fqn)
    usual = [one.passed_bytes for other, one in sizes.items() if _NUMBER.sub("*", other) == like]
    passed = sizes[fqn].passed_bytes / max(median(usual), 1) if fqn in sizes else 1.0
    counted = () if work is None else work.rows
    return passed, next((row.slowest_flops for row in counted if row.name == name), None)


def _judge_work(run: Evidence, own: list[OwnTime]) -> Finding | None:
    """Find the module that takes several times as long as its counted work explains."""
    if any(thread.cores >= BUSY_CORES for thread in run.facts.threads):
        return None  # another thread makes operations longer, whichever module they are in
    costs: dict[str, list[RowCost]] = defaultdict(list)
    for cost in run.costs.values():
        costs[cost.row.name].append(cost)
    found = []
    for one in own:
        beyond_ns = sum(cost.unexplained_ns for cost in costs[one.name])
        part = beyond_ns or sum(cost.pieces_ns for cost in costs[one.name])
        ns = Interval(*(at * part / max(sum(cost.ns for cost in costs[one.name]), 1.0) for at in one.ns))
        bound = MIN_SHARE if beyond_ns else MIN_SMALL_SHARE
        found.append((ns.middle / bound, ns, bound, one))
    _, ns, bound, hot = max(found, key=lambda one: (one[0], one[3].name))
    judged = threshold_time("hot-module", run, ns, ns.middle, bound, hot.row.phase)
    if not isinstance(judged, ExceededBound):
        return judged
    flops, moved, operators = (sum(one) for one in zip(*(cost.work for cost in costs[hot.name]), strict=True))
    evidence = {"flops": round(flops), "moved_bytes": round(moved), "operators": round(operators)}
    own_ns = max(hot.ns.middle, 1.0)
    takes = f"{hot.name} itself takes {format_ms(own_ns)} of the step ({format_percent(own_ns / run.step_time.middle)})"
    lines = _lines(run, hot, judged.share)
    if bound == MIN_SMALL_SHARE:
        calls = round(hot.row.calls / max(hot.row.steps, 1) / _members(hot))
        often = f", in {calls} calls" if calls > 1 else ""
        return judged.finding(
            f"{takes}: it launches {count(round(operators), 'small operator')}{often}, and launching takes most of "
            f"the time, whatever their size{lines}",
            IN_PIECES,
            name=hot.name,
            gain_ns=ns.middle / 2,
            evidence=evidence,
        )
    return judged.finding(
        f"{takes}, and its work explains {format_ms(own_ns - ns.middle)} of it: {format_flops(flops)}, "
        f"{format_bytes(moved)} read and written, {count(round(operators), 'operator')}{lines}",
        IN_ITS_CODE,
        name=hot.name,
        evidence=evidence,
    )


def _judge_forward(run: Evidence, own: list[OwnTime]) -> Finding | None:
    """Find the module in whose own forward much happens that backward has no part in.

    Of modules without others inside, torch's own are left out, as a pool: they do nothing but their operator.
    """
    forward = {row.name: row for row in run.rows.get(Phase.FORWARD, [])}
    backward = {row.name: row for row in run.rows.get(Phase.BACKWARD, [])}
    holding = {row.parent for row in forward.values()}
    found: list[tuple[Interval, OwnTime]] = []
    for one in own:
        size = run.size(one.row.fqn)
        is_code = one.name in holding or (size is not None and not size.kind.startswith("torch."))
        if is_code and one.name in backward and one.row.phase is Phase.FORWARD:
            there, back = run.row_time(forward[one.name]), run.row_time(backward[one.name])
            itself = run.self_time([forward[one.name]])
            excess = Interval(*(max(min(itself[at], there[at] - back[2 - at]), 0.0) for at in range(3)))
            found.append((excess, one))
    if not found:
        return None
    excess, hot = max(found, key=lambda one: one[0].middle)
    judged = threshold_time("hot-module", run, excess, excess.middle, MAX_UNEXPLAINED, Phase.FORWARD)
    if not isinstance(judged, ExceededBound):
        return judged
    forward_ns, backward_ns = (rows[hot.name].total_ns / run.summary.steps for rows in (forward, backward))
    return judged.finding(
        f"the forward of {hot.name} takes {format_ms(forward_ns)}, its backward {format_ms(backward_ns)}: at least "
        f"{format_ms(excess.middle)} "
        f"({format_percent(judged.share.middle)} of the step) in its own code are not part of the model's arithmetic"
        f"{_lines(run, hot, judged.share)}",
        "look in its forward and its hooks, outside of the modules in it, for masks built in Python, statistics, "
        "sorting, printing or copies: compute them once, or not in every step",
        name=hot.name,
    )


def _judge_without_gradient(run: Evidence, own: list[OwnTime]) -> Finding | None:
    """Find the module of the program that takes much of the step, has no backward and next to no counted arithmetic."""
    backward = {row.name for row in run.rows.get(Phase.BACKWARD, [])}
    flops = _flops_of_names(run)
    found = [
        one
        for one in own
        if one.name not in backward
        and (size := run.size(one.row.fqn)) is not None
        and not size.kind.startswith("torch.")
        and not flops.get(one.name)
    ]
    hot = max(found, key=lambda one: one.ns.middle, default=None)
    if hot is None or not backward:
        return None
    judged = threshold_time("hot-module", run, hot.ns, hot.ns.middle, MIN_SMALL_SHARE, Phase.FORWARD)
    if not isinstance(judged, ExceededBound):
        return judged
    return judged.finding(
        f"{hot.name} itself takes {format_percent(judged.share.middle)} of the step, all of it forward, with next to "
        f"no arithmetic of the model{_lines(run, hot, judged.share)}",
        f"compute the output of {hot.name} once and keep it, or in the loader's workers; look for loops in Python, "
        f"copies, {DENORMAL}",
        name=hot.name,
    )


def _judge_cell(run: Evidence, own: list[OwnTime]) -> Finding | None:
    """Find a cell of a recurrent layer that is called for each element of a sequence."""
    found = [one for one in own if (kind := _cell(run, one)) and one.row.calls >= MANY_CALLS * one.row.steps]
    hot = max(found, key=lambda one: one.ns.middle, default=None)
    if hot is None:
        return None
    judged = threshold_time("hot-module", run, hot.ns, hot.ns.middle, phase=hot.row.phase)
    if not isinstance(judged, ExceededBound):
        return judged
    kind, calls = _cell(run, hot), hot.row.calls / max(hot.row.steps, 1) / _members(hot)
    return judged.finding(
        f"{hot.name}, an nn.{kind}, takes {format_percent(judged.share.middle)} of the step: it is called "
        f"{round(calls)} times, and each call launches its small operators",
        f"nn.{kind.removesuffix('Cell')} computes the whole sequence in one call; where each step needs the result of "
        "the one before by other code, compile the loop",
        name=hot.name,
        gain_ns=hot.ns.middle / 2,
    )


def _cell(run: Evidence, one: OwnTime) -> str:
    """Return the class of one of torch's cells; empty for another module."""
    size = run.size(one.row.fqn)
    package, _, name = ("" if size is None else size.kind).rpartition(".")
    return name if package == "torch.nn.modules.rnn" and name.endswith("Cell") else ""


def _lines(run: Evidence, hot: OwnTime, share: Interval) -> str:
    """Return the clause that names the lines in the module's longest phase; empty where they were not sampled."""
    table = run.facts.stacks.get(f"{hot.row.phase} {hot.name}")
    if table is None or not table.named:
        return ""
    part = hot.row.self_ns / max(hot.row.steps, 1) / max(hot.ns.middle, 1.0)
    return f"; {table.describe(min(part, 1.0) * share.middle)}"


RULE = Rule("hot-module", judge, order=50, experiment=edit_module)
