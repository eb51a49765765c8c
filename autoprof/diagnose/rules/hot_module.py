"""Rule ``hot-module``: a module takes far longer than its like siblings, or than its own work explains.

A module that only holds others is the sum of its blocks, and a long module with much arithmetic does its work. So only
a module's own time counts, against blocks of the same structure, or against the time that its work should take.

Finds, above a bound:

- a module whose own time is far longer than that of siblings of the same structure, beyond its larger work: 3 x, and
  10 % of the step more. Where the work cannot be counted, the sizes of the tensors stand for it.
- a module or span that is long in some steps only, with their rhythm, or takes longer from quarter to quarter, beyond
  the time that the steps' larger inputs explain: 10 % of the run.
- one that takes several times as long as its work explains: its FLOPs, the bytes that its operators read and write,
  and their number, at the rates of the slowest kinds of operators, or of the other modules where these are slower: 3
  x, and 10 % of the step beyond its work.
- one that launches a hundred operators or more, as a loop in Python does, where launching takes most of its time, with
  the modules in it: 15 %. Where the work is not counted, the nodes that autograd makes in one call are the least number
  of operators. A note where each call takes the result of the previous call.
- one in whose forward Python runs for long between two operators, as the count of its operators measures: 10 %.
- one of the program's own classes, or one with hooks, whose forward takes twice as long as its backward: masks,
  statistics or hooks in its own code: 15 % of the step more, of all modules with hooks together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import isclose
from statistics import median
from typing import Any, Final, NamedTuple

from ...base.frame import BACKWARD_NAME, MODULE_PHASES, TRAINING_LANE, Phase
from ...base.stats.intervals import Interval
from ...base.stats.rows import RowKey, step_rows
from ...base.summary import POSTPONED, Finding, Row, SlowestMember
from ...base.units import count, format_bytes, format_flops, format_ms, format_percent
from .. import Evidence, ExceededBound, LongStep, Rule, abstain, classify, edit_module, inconclusive, threshold_time
from .._bounds import LARGE_SHARE, MARGIN, MAX_BESIDE, MIN_SHARE, MOST, NEARLY_ALL, SEVERAL
from .._contention import is_crowded
from .._evidence import GRADIENT_HOOKS, NO_WORK, NUMBER, RowCost, RowWork, is_within
from .._ledger import module_rows, work_times
from .._long_steps import collection_cause, is_named_elsewhere
from .._thresholding import phase_groups, rare_evidence, rare_time, share_evidence

SAME_SIZE: Final = 0.01
"""Difference of the parameters' bytes up to which two modules have one structure: a bias more or less."""
DETACH: Final = (
    "detach the state that a step passes to the next one (state = state.detach()): its graph reaches back through all "
    "earlier steps, and backward goes through them again"
)
IN_ITS_CODE: Final = (
    "look in its forward and its hooks, outside of the modules in it, for loops in Python, masks, statistics, sorting, "
    "copies, values read to Python, or values near zero (denormal numbers take many times longer: "
    "torch.set_flush_denormal): use operators on whole tensors, compute it once, or not in every step"
)
IN_PIECES: Final = (
    "compute the whole batch, sequence or all heads in one operator in place of a loop in Python (torch.stack, "
    "torch.func.vmap, nn.LSTM or nn.GRU for a cell), or compile the loop"
)
IN_TURN: Final = (
    "where the result of a call decides the next one, compile it (torch.compile): each is cheaper then; else compute "
    "all of them in one call"
)
IN_PYTHON: Final = (
    "compute it once and keep it as a buffer, or outside of the forward, or with operators on whole tensors in place "
    "of loops in Python"
)

_BOUNDS: Final = {
    "beyond_work_ns": MIN_SHARE,
    "beyond_backward_ns": MAX_BESIDE,
    "python_ns": MIN_SHARE,
}
"""The bound of each kind of time that the ledger leaves open (``RowCost``)."""
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
    explained: float | None
    """How many times as long as the median its work explains; None where it is still to be counted."""


def judge(run: Evidence) -> Finding | None:
    """Judge the time of some steps only, then modules beside their like siblings, then the time that is unexplained."""
    own = _own_times(run)
    found = None if run.facts.trains_copy else _judge_rare(run) or _judge_growth(run)
    if found is not None:
        return found
    if len(own) < 2:
        return abstain("hot-module", "spans of two modules side by side", "name the model's children as targets")
    slow = max([*_slow_rows(run, own), *_slow_members(run)], key=lambda one: one.excess.middle, default=None)
    if slow is None or slow.explained is not None:
        return _judge_sibling(run, slow, own) or _judge_unexplained(run, own)
    return _judge_unexplained(run, own) or _abstain_from(run, slow)


def _own_times(run: Evidence) -> list[OwnTime]:
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in module_rows(run):
        if row.phase.traits.in_module:
            rows[row.name].append(row)
    found = []
    for name, several in rows.items():
        longest = max(several, key=lambda row: row.self_ns)
        found.append(OwnTime(name, run.self_time(several), longest))
    return found


def _judge_rare(run: Evidence) -> Finding | None:
    """Find the module or span that is long in some steps only, by the sum over the run."""
    groups = phase_groups(run.rows.keys() - _OWNED)
    found = [(rare, phases) for phases in groups if (rare := rare_time(run, phases)) is not None]
    if not found:
        return None
    rare, phases = max(found, key=lambda one: one[0].share.middle)
    long = [step for step in run.longest if step.step in rare.steps]
    gain_ns = rare.share.middle * run.summary.step_mean_ns
    if collection_cause(run, long) is not None or is_named_elsewhere(run, long, round(gain_ns)):
        return None
    # Some steps train a part that others do not, as a generator after several updates of its discriminator. Without a
    # pattern, more calls are more work, as where a model chooses its depth for each batch; and a backward in which no
    # line of the program runs does what its forward has done: memory that comes and goes makes it longer.
    causes = (
        cause
        for step in long
        if (cause := _innermost_cause(run, step, rare.excess_ns, phases)) is not None
        and cause[0] != BACKWARD_NAME
        and not _is_trained_at_times(run, step, cause[0])
        and (rare.has_pattern or not _is_called_more(run, step, *cause))
        and (rare.has_pattern or not _is_torchs_backward(run, *cause))
    )
    evidence = rare_evidence(rare, MIN_SHARE, run.summary.steps)
    name, judged = _excess(Counter(causes), rare.share, gain_ns, evidence)
    if judged is None:
        return None
    return judged.finding(
        f"{name} takes {format_ms(rare.excess_ns)} in {rare.when} beyond its time in the others: "
        f"{format_percent(rare.share.middle)} of the run",
        f"look at the work that {name} does only in these steps: do it less often, or make it cheaper",
        name=name,
    )


def _judge_growth(run: Evidence) -> Finding | None:
    """Find the module that takes longer from quarter to quarter of the run."""
    growth = run.series.growth(MODULE_PHASES, run.facts.explained)
    if growth is None or (growth.elsewhere >= MOST and is_crowded(run)):
        return None
    last_ns = growth.last_ns - growth.first_ns
    causes = filter(None, (_innermost_cause(run, step, last_ns, MODULE_PHASES) for step in run.longest))
    evidence = share_evidence(growth.share, MIN_SHARE, run.summary.steps)
    name, judged = _excess(Counter(causes), growth.share, growth.excess_ns, evidence)
    if judged is None:
        return None
    first, last = format_ms(growth.first_ns), format_ms(growth.last_ns)
    return judged.finding(
        f"forward and backward get longer: from {first} in the first quarter of the run to {last} in the last one, "
        f"most of it in {name}; the excess over the first quarter is {format_percent(growth.share.middle)} of the run",
        DETACH
        if name == BACKWARD_NAME
        else f"look for inputs of {name} that grow, or values that it keeps and goes through in each step",
        name=name,
    )


def _excess(
    causes: Counter[tuple[str, Phase]], share: Interval, gain_ns: float, evidence: Mapping[str, Any]
) -> tuple[str | None, ExceededBound | None]:
    """Return the most frequent cause of an excess, and the excess if it is above a tenth of the run."""
    if not causes or classify(share, MIN_SHARE) != "above":
        return None, None
    name, phase = causes.most_common(1)[0][0]
    return name, ExceededBound("hot-module", gain_ns, share, share.middle, MIN_SHARE, phase, evidence)


def _innermost_cause(
    run: Evidence, step: LongStep, excess_ns: float, phases: tuple[Phase, ...]
) -> tuple[str, Phase] | None:
    """Return the innermost name that alone has half of a step's excess, with its longest phase."""
    usual = {
        (row.name, row.phase): row.min_ns
        for row in run.summary.rows
        if row.lane == TRAINING_LANE and row.steps >= NEARLY_ALL * run.summary.steps
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
    rows, key = step_rows(step.layout), RowKey(name, phase, TRAINING_LANE)
    calls = int(rows.calls[rows.keys.index(key)]) if key in rows.keys else 0
    return any(row.name == name and calls * run.summary.steps > row.calls for row in run.rows.get(phase, []))


def _is_trained_at_times(run: Evidence, step: LongStep, name: str) -> bool:
    """Return whether a step has more backward passes of a module whose forward runs in nearly all steps."""
    forward = (row for row in run.rows.get(Phase.FORWARD, []) if row.name == name)
    is_usual = any(row.steps >= NEARLY_ALL * run.summary.steps for row in forward)
    return is_usual and _is_called_more(run, step, name, Phase.BACKWARD)


def _is_torchs_backward(run: Evidence, name: str, phase: Phase) -> bool:
    """Return whether a row is a backward in which no line of the program was sampled."""
    table = run.facts.stacks.get(f"{phase} {name}")
    return phase is Phase.BACKWARD and table is not None and not table.code_in_backward.named


def _abstain_from(run: Evidence, slow: SlowSibling) -> Finding | None:
    """Say that a module is longer than its siblings where its work is still to be counted.

    Attention over the whole sequence beside attention over windows has the same class, parameters and tensors.
    """
    if classify(slow.times, SEVERAL) != "above" or slow.excess.low < MIN_SHARE * run.step_time.high:
        return None
    return abstain(
        "hot-module",
        f"the FLOPs of {slow.module}, which takes {slow.times.middle:.1f} x as long as its siblings",
        "a longer run: they are counted when the budget affords it",
    )


def _judge_sibling(run: Evidence, slow: SlowSibling | None, own: list[OwnTime]) -> Finding | None:
    """Find the module that takes much longer than the others of its structure."""
    if slow is None or slow.explained is None:
        return None
    position = classify(slow.times, SEVERAL * slow.explained)
    if position == "below":
        return None
    found = threshold_time("hot-module", run, slow.excess, slow.excess.middle, MIN_SHARE, slow.row.phase)
    if not isinstance(found, ExceededBound):
        return found
    if position == "near":
        return inconclusive("hot-module", found.share, MIN_SHARE, found.evidence)
    size = run.size(slow.module if slow.module != slow.row.name else slow.row.fqn)
    hooked = size is not None and size.has_hooks and slow.row.phase is Phase.BACKWARD
    larger = "" if slow.explained <= 1 + MARGIN else f" (its larger work explains {slow.explained:.1f} x)"
    if run.summary.work is not None and run.summary.work.reason is not None:
        larger += ", as far as their tensors show: their work cannot be counted"
    longest = next(one for one in own if one.name == slow.row.name)
    return found.finding(
        f"{slow.module} takes {slow.times.middle:.1f} x as long as the median of its {slow.siblings} siblings of the "
        f"same structure{larger}: {format_ms(slow.excess.middle)} more in each step{_lines(run, longest)}",
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


def _slow_rows(run: Evidence, own: list[OwnTime]) -> Iterator[SlowSibling]:
    """Yield the longest of each group of modules whose names differ only in their numbers."""
    groups: dict[tuple[str, str], list[OwnTime]] = defaultdict(list)
    for one in (one for one in own if one.row.fqn is not None):
        groups[NUMBER.sub("*", one.name), NUMBER.sub("*", one.row.parent or "")].append(one)
    held = {row.name: row.parameter_bytes for row in run.summary.memory_table}
    for group in groups.values():
        hot = max(group, key=lambda one: one.ns.middle / run.members(one.row))
        alike = [one for one in group if one is not hot and _is_alike(run, held, hot, one)]
        others = [(one, Interval(*(at / run.members(one.row) for at in one.ns))) for one in alike]
        times = [ns for one, ns in others for _ in range(run.members(one.row))]
        if len(times) >= 2 and run.members(hot.row) == 1:
            usual = Interval(*(max(median(ns[at] for ns in times), 1.0) for at in range(3)))
            nearest, _ = min(others, key=lambda one: abs(one[1].middle - usual.middle))
            explained = _explained_times(
                run, _own_work(run, hot), _own_work(run, nearest), hot.row.fqn, [one.row.fqn for one in alike]
            )
            excess = Interval(*(max(part - (explained or 1.0) * usual.middle, 0.0) for part in hot.ns))
            yield SlowSibling(hot.name, hot.row, hot.ns.over(usual), excess, len(times), explained)


def _own_work(run: Evidence, one: OwnTime) -> RowWork | None:
    """Return the own work of one of the modules of a name, over its phases; None where it is not counted."""
    works = [cost.work for cost in run.costs.values() if cost.row.name == one.name]
    counted = [work for work in works if work is not None]
    return RowWork(*(sum(parts) / run.members(one.row) for parts in zip(*counted, strict=True))) if counted else None


def _slow_members(run: Evidence) -> Iterator[SlowSibling]:
    """Yield the slowest module of the rows that several modules share.

    Of a slow block and the slow part of it, the part: it has nearly all of the block's excess.
    """
    rows: dict[str, list[tuple[Row, SlowestMember]]] = defaultdict(list)
    for row in run.summary.rows:
        if row.lane == TRAINING_LANE and row.slowest is not None and row.slowest.times >= SEVERAL:
            rows[row.slowest.fqn].append((row, row.slowest))
    found = [_slow_member(run, fqn, several) for fqn, several in rows.items()]
    longest_ns = max((one.excess.middle for one in found), default=0.0)
    yield from sorted(
        (one for one in found if one.excess.middle >= NEARLY_ALL * longest_ns), key=lambda one: -len(one.module)
    )[:1]


def _slow_member(run: Evidence, fqn: str, rows: list[tuple[Row, SlowestMember]]) -> SlowSibling:
    """Compare a module with the median of those that share its rows, one row for each phase."""
    row, slowest = max(rows, key=lambda one: one[0].total_ns)
    times, longer_ns = max(one.times for _, one in rows), sum(one.excess_ns for _, one in rows)
    phases = [row.phase for row, _ in rows]
    work, shared = run.whole_work(fqn, phases), run.whole_work(row.name, phases)
    others, usual = max(slowest.members - 1, 1), None
    if work is not None and shared is not None:
        usual = RowWork(*(max(part - own, 0.0) / others for part, own in zip(shared, work, strict=True)))
    like = NUMBER.sub("*", fqn)
    siblings = [one for one in run.facts.sizes if NUMBER.sub("*", one) == like]
    explained = _explained_times(run, work, usual, fqn, siblings)
    excess_ns = max(longer_ns - ((explained or 1.0) - 1) * longer_ns / max(times - 1, 1), 0.0)
    return SlowSibling(fqn, row, Interval.exact(times), Interval.exact(excess_ns), slowest.members - 1, explained)


def _explained_times(
    run: Evidence, work: RowWork | None, usual: RowWork | None, fqn: str | None, siblings: Iterable[str | None]
) -> float | None:
    """Return how many times as long as its siblings a module may take; None where their work is still to be counted.

    Where it cannot be counted, the bytes that a call passes stand for it: most operators take time in proportion to
    them, attention in proportion to the square of the length.
    """
    counted = run.summary.work
    if (work is not None and usual is not None) or (counted is not None and counted.reason == POSTPONED):
        return work_times(run, work, usual)
    own, others = run.size(fqn), [size.passed_bytes for one in siblings if (size := run.size(one)) is not None]
    return max(own.passed_bytes / max(median(others), 1), 1.0) ** 2 if own is not None and others else 1.0


def _is_alike(run: Evidence, held: Mapping[str | None, int | None], hot: OwnTime, other: OwnTime) -> bool:
    """Return whether two modules have as many bytes of parameters (``held``), or one class where they have none."""
    mine, theirs = held.get(hot.name), held.get(other.name)
    if not mine and not theirs:
        return len({size.kind for one in (hot, other) if (size := run.size(one.row.fqn)) is not None}) < 2
    return mine is None or theirs is None or isclose(mine, theirs / run.members(other.row), rel_tol=SAME_SIZE)


def _judge_unexplained(run: Evidence, own: list[OwnTime]) -> Finding | None:
    """Find the module with most time that the ledger does not explain, or that launching its operators takes."""
    if any(thread.cores >= LARGE_SHARE for thread in run.facts.threads):
        return None  # another thread makes operations longer, whichever module they are in
    costs: dict[str, list[RowCost]] = defaultdict(list)
    for cost in run.costs.values():
        costs[cost.row.name].append(cost)
    found, hooked = [], _hooked(run, own, costs)
    for one in own:
        for kind, bound in _BOUNDS.items():
            ns = _part(one, costs[one.name], kind)
            found.append((ns.middle / bound, one.name, kind, ns, one))
    most, _, kind, ns, hot = max(found, key=lambda one: one[:2])
    loop, others_ns = _loop(run, own, costs), most * MAX_BESIDE
    loop_ns = 0.0 if loop is None else loop.ns.middle
    if hooked and sum(ns.middle for _, ns in hooked) > max(others_ns, loop_ns):
        return _judge_hooks(run, hooked)
    if loop is not None and loop_ns >= others_ns:
        return _judge_loop(run, loop)
    judged = threshold_time("hot-module", run, ns, ns.middle, _BOUNDS[kind], hot.row.phase)
    if not isinstance(judged, ExceededBound):
        return judged
    own_ns, work = hot.ns.middle, _whole_work(costs[hot.name])
    if kind == "python_ns":
        because = f"{format_ms(ns.middle)} of it is code of the program that runs between its operators"
    elif kind == "beyond_work_ns":
        because = (
            f"its work explains {format_ms(own_ns - ns.middle)} of it: {format_flops(work.flops)}, "
            f"{format_bytes(work.moved)} read and written, {count(round(work.operators), 'operator')}"
        )
    else:
        longer = format_ms(ns.middle)
        because = f"its forward takes {longer} longer than its backward, and that is no arithmetic of the model"
    return judged.finding(
        f"{hot.name} itself takes {format_ms(own_ns)} of the step ({format_percent(own_ns / run.step_time.middle)}): "
        f"{because}{_lines(run, hot)}",
        IN_PYTHON if kind == "python_ns" else IN_ITS_CODE,
        name=hot.name,
        gain_ns=ns.middle,
        evidence=_evidence(work) if any(cost.work for cost in costs[hot.name]) else {},
    )


def _part(one: OwnTime, costs: list[RowCost], kind: str) -> Interval:
    """Return the part of a module's own time that is of one kind of ``RowCost``."""
    part = sum(getattr(cost, kind) for cost in costs) / max(sum(cost.ns for cost in costs), 1.0)
    return Interval(*(at * part for at in one.ns))


def _whole_work(costs: Iterable[RowCost]) -> RowWork:
    """Return the work of several rows; of one whose work is not counted, its operators."""
    works = [cost.work or NO_WORK._replace(operators=cost.operators) for cost in costs]
    return RowWork(*map(sum, zip(*works, strict=True)))


def _evidence(work: RowWork) -> dict[str, int]:
    return {"flops": round(work.flops), "moved_bytes": round(work.moved), "operators": round(work.operators)}


class Loop(NamedTuple):
    """A module that loops in Python: its time of launches with that of the modules in it, and their costs."""

    outer: OwnTime
    ns: Interval
    own: list[OwnTime]
    costs: list[RowCost]


def _loop(run: Evidence, own: list[OwnTime], costs: Mapping[str, list[RowCost]]) -> Loop | None:
    """Return the innermost module with such time in which nearly all of it lies, or else the one with most of it."""
    parts = [(one, ns) for one in own if (ns := _part(one, costs[one.name], "pieces_ns")).middle > 0]
    found = []
    for outer, _ in parts:
        fqn = outer.row.fqn
        inside = [(one, ns) for one, ns in parts if one is outer or (fqn is not None and is_within(one.row, fqn))]
        ns = Interval(*(sum(several) for several in zip(*(ns for _, ns in inside), strict=True)))
        held = [one for one, _ in inside]
        found.append(Loop(outer, ns, held, [cost for one in held for cost in costs[one.name]]))
    enough = NEARLY_ALL * sum(ns.middle for _, ns in parts)
    whole = [loop for loop in found if loop.ns.middle >= enough]
    if whole:
        return min(whole, key=lambda loop: (len(loop.own), loop.outer.name))
    return max(found, key=lambda loop: (loop.ns.middle, loop.outer.name), default=None)


def _called(loop: Loop) -> list[OwnTime]:
    """Return the outermost modules that a loop calls again and again; itself, where it calls none."""
    called = [one for one in loop.own if one is not loop.outer and one.row.calls > one.row.steps] or [loop.outer]
    depths = [(one.row.fqn or "").count(".") for one in called]
    return [one for one, depth in zip(called, depths, strict=True) if depth == min(depths)]


def _judge_loop(run: Evidence, loop: Loop) -> Finding | None:
    """Judge the launches of a loop: half of their time is gained where the loop is one operator."""
    judged = threshold_time("hot-module", run, loop.ns, loop.ns.middle, MAX_BESIDE, loop.outer.row.phase)
    if not isinstance(judged, ExceededBound):
        return judged
    work, name = _whole_work(loop.costs), loop.outer.name
    is_counted = any(cost.work for cost in loop.costs)
    own_ns = sum(one.ns.middle for one in loop.own)
    called = _called(loop)
    calls = max(round(one.row.calls / max(one.row.steps, 1) / run.members(one.row)) for one in called)
    often = f", in {calls} calls" if calls > 1 else ""
    small = f"{'' if is_counted else 'at least '}{count(round(work.operators), 'small operator')}"
    in_turn = all(size is not None and size.chained for one in called for size in [run.size(one.row.fqn)])
    subject = f"{name} itself takes" if len(loop.own) == 1 else f"{name} and modules in it take"
    return judged.finding(
        f"{subject} {format_ms(own_ns)} of the step ({format_percent(own_ns / run.step_time.middle)}): "
        f"{'it launches' if len(loop.own) == 1 else 'they launch'} {small}{often}, as a loop in Python does, and "
        "launching takes most of the time"
        f"{'; each call works on what the one before it has returned' if in_turn else ''}{_lines(run, loop.outer)}",
        IN_TURN if in_turn else IN_PIECES,
        name=name,
        gain_ns=loop.ns.middle / 2,
        evidence={"launched": round(work.operators), **(_evidence(work) if is_counted else {})},
        is_note=in_turn,
    )


def _hooked(run: Evidence, own: list[OwnTime], costs: Mapping[str, list[RowCost]]) -> list[tuple[OwnTime, Interval]]:
    """Return the modules with hooks of the program, each with the time of its forward that these take.

    The time of hooks is that of their lines where lines were sampled, or else the time that nothing explains.
    """
    found = []
    for one in own:
        size, forward = run.size(one.row.fqn), [cost for cost in costs[one.name] if cost.row.phase is Phase.FORWARD]
        if size is None or not size.hook:
            continue
        table, name = run.facts.stacks.get(f"{Phase.FORWARD} {one.name}"), size.hook.partition(" (")[0]
        if table is None or not table.named:
            hook_ns = sum(cost.unexplained_ns for cost in forward)
        else:
            lines = [line for line in table.named if line.function == name.rpartition(".")[2]]
            hook_ns = sum(map(table.share, lines)) * sum(cost.ns for cost in forward)
        part = hook_ns / max(sum(cost.ns for cost in costs[one.name]), 1.0)
        if part:
            found.append((one, Interval(*(at * part for at in one.ns))))
    return sorted(found, key=lambda one: -one[1].middle)


def _judge_hooks(run: Evidence, hooked: list[tuple[OwnTime, Interval]]) -> Finding | None:
    """Judge the time of all modules with hooks together: each does a little, and one function runs in all of them."""
    ns = Interval(*(sum(parts) for parts in zip(*(ns for _, ns in hooked), strict=True)))
    judged = threshold_time("hot-module", run, ns, ns.middle, MAX_BESIDE, Phase.FORWARD)
    if not isinstance(judged, ExceededBound):
        return judged
    longest, size = hooked[0][0], run.size(hooked[0][0].row.fqn)
    hook = "" if size is None else size.hook
    return judged.finding(
        f"the forward hooks of {count(len(hooked), 'module')}, {longest.name} first, take {judged}; such a hook is "
        f"{hook}{_lines(run, longest)}",
        "remove the hooks, let them run once in many steps, or keep their statistics on the tensors' device without "
        "reading values (item, bool)",
        name=hook or None,
        evidence={"hook": hook, "modules": len(hooked)},
    )


def _lines(run: Evidence, hot: OwnTime) -> str:
    """Return the clause that names the lines in the module's longest phase, or in its forward, by share of the step.

    It is empty where they were not sampled. The code of torch that runs most of a backward has no lines.
    """
    for phase in (hot.row.phase, Phase.FORWARD):
        table = run.facts.stacks.get(f"{phase} {hot.name}")
        if table is not None and phase is Phase.BACKWARD:
            table = table.code_in_backward
        row = next((row for row in run.rows.get(phase, []) if row.name == hot.name), None)
        if table is not None and table.named and row is not None:
            share = row.self_ns / max(run.summary.steps * run.summary.step_mean_ns, 1)
            return f"; {table.describe(share)}{table.described_waits}"
    return ""


RULE = Rule("hot-module", judge, order=50, experiment=edit_module)
