"""The ledger of a run: each nanosecond of a step has one owner, and its state tells whether anything explains it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from typing import Final

from ..base.frame import BACKWARD_NAME, MODULE_PHASES, TRAINING_LANE, Phase
from ..base.summary import LedgerEntry, Row, State
from ._bounds import MANY
from ._contention import own_time_ns, running
from ._evidence import Evidence, RowCost, RowWork

SLOWEST_FLOPS_PER_NS: Final = 4.0
"""FLOPs in a nanosecond that one core reaches with the slowest kinds of products: the backward of depthwise
convolutions and of those in three dimensions reaches two to four, a product of matrices eighty."""
SLOWEST_BYTES_PER_NS: Final = 1.0
"""Bytes moved in a nanosecond by the slow kinds of other operators on one core: pooling, dropout and interpolation move
one, most activations and normalisations five or more."""
OPERATOR_NS: Final = 20_000
"""The time to launch an operator from Python, with its node of autograd: ten microseconds on a slow core, or twenty."""
DEVICE_TIMES: Final = 100.0
"""Times as fast as one core that a device with a clock of its own is at least: its memory moves hundreds of bytes in a
nanosecond."""
LONGER_FORWARD: Final = 2.0
"""Forward over backward from which the difference is no arithmetic. A layer of a long convolution, with exponentials
of complex numbers, took 1.9 times as long forward as backward."""
USUAL_RATIO: Final = 2.0
"""Backward over forward in theory: two products for one, for the gradients of the input and of the weights (Kaplan
et al. 2020, arXiv:2001.08361, section 2.1)."""
MIN_CANDIDATE: Final = 0.01
"""Share of the step from which a row that seems slow is compared with the others: there are hundreds of short ones."""

CHOSEN: Final = {Phase.RECOMPUTE}
WAITING: Final = {Phase.DATA, Phase.H2D, Phase.COMM}


def row_works(run: Evidence) -> dict[tuple[str, Phase], RowWork]:
    """Return the work of each name in each phase outside of the names in it; empty where it is not counted."""
    counted = run.summary.work
    if counted is None:
        return {}
    phases = MODULE_PHASES if counted.reason is None else (Phase.FORWARD,)
    rows = {row.name: row for row in counted.rows}
    inside: dict[str | None, set[str]] = defaultdict(set)
    for one in module_rows(run):
        if one.parent != one.name and one.name in rows:
            inside[one.parent].add(one.name)

    def own(counts: Mapping[str, Mapping[str, int]], name: str, phase: Phase) -> float:
        inner = sum(counts[child].get(phase, 0) for child in inside[name])
        return max(counts[name].get(phase, 0) - inner, 0)

    kinds = [{name: getattr(row, field) for name, row in rows.items()} for field in RowWork._fields]
    return {
        (row.name, row.phase): RowWork(*(own(counts, row.name, row.phase) for counts in kinds))
        for row in module_rows(run)
        if row.name in rows and row.phase in phases
    }


def row_costs(run: Evidence) -> dict[tuple[str, Phase], RowCost]:
    """Return the cost of each module's row in a mean step, and the time that its work explains.

    The work is turned into time at the rates of the slowest kinds of operators on one core. Where the other rows of a
    run, by the time of the median one, reach only a part of these, so may this one: a row is not long because its
    machine is slow.
    """
    works, steps, part = row_works(run), max(run.summary.steps, 1), _running(run)
    code, nodes = _own_code(run), _own_nodes(run)
    beyond = _beyond_backward(run, code)
    found = {}
    for row in module_rows(run):
        beyond_ns = beyond.get(row, 0) / steps * part
        cost = RowCost(row, row.self_ns / steps * part, run.members(row), beyond_backward_ns=beyond_ns)
        work = works.get((row.name, row.phase))
        operators = nodes.get(row, 0.0) if work is None else work.operators
        arithmetic_ns = 0.0 if work is None else arithmetic_time(run, work)
        launch_ns = operators * OPERATOR_NS
        found[row.name, row.phase] = cost._replace(
            arithmetic_ns=arithmetic_ns,
            launch_ns=launch_ns,
            operators=operators,
            is_code=row.name in code or row.calls >= MANY * run.members(row) * row.steps,
            work=work,
        )
    for (name, phase), cost in found.items():
        forward = found.get((name, Phase.FORWARD))
        if phase is Phase.BACKWARD and forward is not None and forward.pieces_ns:
            # Where a loop reads slices, backward writes a gradient of the whole for each: these bytes are its own.
            most_ns = USUAL_RATIO * forward.arithmetic_ns
            found[name, phase] = cost._replace(arithmetic_ns=min(cost.arithmetic_ns, most_ns))
    costs = [cost for cost in found.values() if cost.work is not None]
    for cost in costs:
        if cost.beyond_work_ns >= MIN_CANDIDATE * run.summary.step_mean_ns:
            slower = max(_usual_times([other for other in costs if _is_measure(run, other, cost)]), 1.0)
            found[cost.row.name, cost.row.phase] = cost._replace(
                arithmetic_ns=cost.arithmetic_ns * slower, launch_ns=cost.launch_ns * slower
            )
    return found


def arithmetic_time(run: Evidence, work: RowWork) -> float:
    """Return the nanoseconds that the FLOPs and bytes of some work take at the slowest rates."""
    times = DEVICE_TIMES if run.summary.clock == "device" else 1.0
    return (work.flops / SLOWEST_FLOPS_PER_NS + work.moved / SLOWEST_BYTES_PER_NS) / times


def work_times(run: Evidence, work: RowWork | None, usual: RowWork | None) -> float | None:
    """Return how many times as long as the ``usual`` work another takes by its FLOPs and bytes; None if not counted.

    More operators do not explain it: where they compute no more, they are those of a loop.
    """
    if work is None or usual is None:
        return None
    explained_ns = arithmetic_time(run, usual) + usual.operators * OPERATOR_NS
    return 1 + max(arithmetic_time(run, work) - arithmetic_time(run, usual), 0.0) / max(explained_ns, OPERATOR_NS)


def _own_nodes(run: Evidence) -> dict[Row, float]:
    """Return how many nodes of autograd the calls of each row make in a step, without those of the rows in it.

    Where a backward pass runs inside of a module most of them are the derivative's, which no loop in Python has made.
    """
    differentiated = {row.parent for row in run.rows.get(Phase.BACKWARD, []) if row.name == BACKWARD_NAME}

    def made(row: Row) -> float:
        size = run.size(row.fqn)
        return 0.0 if size is None else size.nodes * row.calls / max(run.summary.steps, 1)

    inner: dict[tuple[str | None, Phase], float] = defaultdict(float)
    for row in module_rows(run):
        inner[row.parent, row.phase] += made(row)
    return {
        row: max(made(row) - inner[row.name, row.phase], 0.0)
        for row in module_rows(run)
        if row.name not in differentiated
    }


def _is_measure(run: Evidence, other: RowCost, cost: RowCost) -> bool:
    """Return whether another row shows the rate that this one should reach: the work of hooks is not counted."""
    size = run.size(other.row.fqn)
    is_hooked = other.row.phase is Phase.FORWARD and size is not None and bool(size.hook)
    return other.row.name != cost.row.name and not is_hooked


def _own_code(run: Evidence) -> set[str]:
    """Return the names of modules and spans in which code of the program runs.

    Of torch's own classes only those that hold others, or have hooks, are such: a pool does nothing but its operator.
    A loss or a span outside of the model is such a name only where lines of the program were sampled in it.
    """
    holding, found = {row.parent for row in run.rows.get(Phase.FORWARD, [])}, set()
    for row in module_rows(run):
        if row.fqn is None:
            if row.phase is Phase.FORWARD and _lines(run, row):
                found.add(row.name)
            continue
        size = run.size(row.fqn)
        if row.name in holding or (size is not None and (size.hook or not size.kind.startswith("torch."))):
            found.add(row.name)
    return found


def _beyond_backward(run: Evidence, code: Container[str]) -> dict[Row, int]:
    """Return the own time by which forwards take longer than their backwards, of modules with ``code``.

    Those that take ``LONGER_FORWARD`` times as long at least.
    """
    backwards = {row.name: row for row in run.rows.get(Phase.BACKWARD, [])}
    found = {}
    for row in run.rows.get(Phase.FORWARD, []):
        back = backwards.get(row.name)
        if back is not None and row.name in code:
            usual_ns = back.total_ns * max(row.calls / max(back.calls, 1), 1.0)  # as if each call had a backward
            if row.total_ns >= LONGER_FORWARD * usual_ns:
                found[row] = min(row.self_ns, round(row.total_ns - usual_ns))
    return found


def _running(run: Evidence) -> float:
    """Return the part of its time that an operator runs for, and does not wait for processors.

    One on several threads ends when the last of them had a processor, and the first ones wait for it.
    """
    part = running(run)
    return part if (run.facts.environment.threads or 1) == 1 else part**2


def _usual_times(costs: list[RowCost]) -> float:
    """Return how many times the time that its work explains a row takes: the median, weighted by the time."""
    ratios = sorted((cost.ns / max(cost.explained_ns, 1.0), cost.ns) for cost in costs)
    half_ns = sum(ns for _, ns in ratios) / 2
    for ratio, ns in ratios:
        half_ns -= ns
        if half_ns <= 0:
            return ratio
    return 1.0


def build_ledger(run: Evidence) -> tuple[LedgerEntry, ...]:
    """Return the owners of the time of a mean step, and of what is excluded, the longest first.

    The entries of the training thread add up to the mean step.
    """
    summary = run.summary
    if not summary.steps:
        return ()
    entries = [*_rows(run), *_rest(run)]
    entries += [
        LedgerEntry(one.kind, None, "choice", round(one.total_ns / max(summary.all_steps, 1))) for one in summary.stages
    ]
    return tuple(sorted((one for one in entries if one.ns > 0), key=lambda one: -one.ns))


def _rows(run: Evidence) -> Iterator[LedgerEntry]:
    costs, steps = run.costs, run.summary.steps
    for row in run.summary.rows:
        if row.lane != TRAINING_LANE:
            continue
        ns, cost = round(row.self_ns / steps), costs.get((row.name, row.phase))
        state: State = "uncounted"
        if row.phase in WAITING or row.phase in CHOSEN:
            state = "waiting" if row.phase in WAITING else "choice"
        elif cost is not None:
            state = "uncounted" if cost.work is None else "arithmetic"
            beyond = round(ns * cost.unexplained_ns / max(cost.ns, 1.0))
            if beyond:
                ns -= beyond
                yield LedgerEntry(row.name, row.phase, "unexplained", beyond, _lines(run, row))
        yield LedgerEntry(row.name, row.phase, state, ns, _lines(run, row))


def _lines(run: Evidence, row: Row) -> str:
    """Return the program's lines inside of a row, and not those that call a layer of torch."""
    table = run.facts.stacks.get(f"{row.phase} {row.name}")
    return "" if table is None or table.is_torch_work else table.describe(1.0)


def _rest(run: Evidence) -> Iterator[LedgerEntry]:
    """Yield the time of a step in no span: autoprof's own work, and the rest, which nothing explains."""
    summary = run.summary
    other_ns = summary.phases.get(Phase.OTHER, 0) / summary.steps
    own_ns = min(own_time_ns(run), other_ns)
    yield LedgerEntry("autoprof", None, "choice", round(own_ns))
    yield LedgerEntry(None, Phase.OTHER, "unexplained", round(other_ns - own_ns))


def module_rows(run: Evidence) -> Iterator[Row]:
    """Yield the rows of modules, and those of losses and spans that run beside them."""
    for row in run.summary.rows:
        is_beside = row.phase in MODULE_PHASES and row.name != BACKWARD_NAME
        if row.lane == TRAINING_LANE and (row.fqn is not None or is_beside):
            yield row
