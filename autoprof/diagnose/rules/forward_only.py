"""Rule ``forward-only``: parts of a forward have no backward pass.

The results of such calls may be unused. Metrics can be computed from the outputs at hand, and features of a frozen part
can be kept; a rollout, a teacher or an encoder of negatives needs its calls. Masks, tables and features of the inputs
in which no parameter takes part may be the same in each step, or depend on the batch. Nothing tells these apart, so it
is a note.

Finds, above a bound:

- modules of which some forwards have a backward pass and others have none, with the lines that call them; or of which
  none has one, though each makes a graph in a model that is trained: 10 % of the step in those without. A note.
- modules without parameters and lines in the forward of a trained model that make no graph, as masks, tables and
  features of the inputs: 10 % of the step. A note.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from ...base.frame import Phase
from ...base.summary import Finding, Row
from ...base.units import format_count, format_ms, format_percent
from .. import Evidence, Rule, less_often
from .._bounds import MIN_SHARE
from .._calls import CallSite
from .._stacks import CALLS, StackTable
from .._thresholding import is_above

BACKWARD_TIMES: Final = 1.5
"""Backward over forward of one call, below the two of theory: the first layers compute no gradient of their input."""


def judge(run: Evidence) -> Finding | None:
    """Judge the calls of modules without a backward pass, or else the parts of the forwards that make no graph."""
    return _judge_calls(run) or _judge_without_graph(run)


def _judge_calls(run: Evidence) -> Finding | None:
    """Judge the outermost modules with fewer backward passes than forwards, by the least time of the calls without."""
    steps, step_ns = max(run.summary.steps, 1), max(run.summary.total_step_ns, 1)
    forward = [row for row in run.rows.get(Phase.FORWARD, ()) if row.fqn is not None]
    backward = {row.name: row for row in run.rows.get(Phase.BACKWARD, ())}
    passes = {name: row.calls for name, row in backward.items()}
    trained = {*passes} | {
        row.name for row in forward if row.parent in passes and (size := run.size(row.fqn)) is not None and size.nodes
    }
    few = {
        row.name
        for row in forward
        if row.name in trained and is_above(_unused_ns(row, backward.get(row.name)) / step_ns, MIN_SHARE)
    }
    outermost = [row for row in forward if row.name in few and row.parent not in few - {row.name}]
    longest = max(outermost, key=lambda row: row.total_ns, default=None)
    if longest is None:
        return None
    used, share = passes.get(longest.name, 0), longest.total_ns / step_ns
    table = run.facts.stacks.get(f"{CALLS} {longest.name}")
    lines = f": {table.describe(share)}" if table is not None and table.named else ""
    spread = run.series.spread()
    rhythm = f" (long steps: {spread.when})" if spread is not None and spread.every is not None else ""
    calls = format_count(longest.calls / steps)
    often = f"{longest.name} is called {'once' if calls == '1' else f'{calls} times'} a step{rhythm}, and"
    have = "has" if format_count(used / steps) == "1" else "have"
    time = f"{format_ms(longest.total_ns / steps)} ({format_percent(share)} of the step)"
    return Finding(
        "forward-only",
        "note",
        f"{often} {format_count(used / steps)} of the calls {have} a backward pass. All its forwards take {time}{lines}"
        if used
        else f"{often} none of the calls has a backward pass, though each makes a graph for one: {time}{lines}",
        "are the results of the others used? What the loss has computed, as outputs for a metric, need not be computed "
        "again, and features that do not change can be kept; else call it under torch.no_grad(), and on a larger batch"
        if used
        else "is its result used? If so, call it under torch.no_grad(); else leave it out, or add it to the loss",
        longest.name,
        Phase.FORWARD,
        evidence={"calls": longest.calls, "passes": used, **(table.evidence() if table else {})},
    )


def _judge_without_graph(run: Evidence) -> Finding | None:
    """Judge the time of the forwards in which no parameter takes part, of all modules together."""
    if not run.rows.get(Phase.BACKWARD):
        return None
    found, frozen = [], _frozen(run)
    for row in (row for row in run.rows.get(Phase.FORWARD, []) if row.fqn is not None and row.name not in frozen):
        table = run.facts.stacks.get(f"{Phase.FORWARD} {row.name}") or StackTable(0, 0, ())
        lines = tuple(line for line in table.innermost if _makes_no_graph(run, row, line))
        part = 1.0 if _has_no_graph(run, row) else sum(map(table.share, lines))
        found.append((part * row.self_ns, row, replace(table, lines=lines)))
    ns, step_ns = sum(ns for ns, _, _ in found), max(run.summary.total_step_ns, 1)
    if not is_above(ns / step_ns, MIN_SHARE):
        return None
    _, row, table = max(found, key=lambda one: (one[0], one[1].name))
    where = f": {table.describe(row.self_ns / step_ns)}" if table.named else ""
    return Finding(
        "forward-only",
        "note",
        f"{format_ms(ns / run.summary.steps)} ({format_percent(ns / step_ns)} of the step) in the forward are work in "
        f"which no parameter takes part, most of it in {row.name}{where}",
        "what is the same in each step, as a mask or a table: compute it once and keep it as a buffer; features of the "
        "batch alone can be made in the loader's workers, or once for the whole dataset",
        row.name,
        Phase.FORWARD,
        evidence=table.evidence(),
    )


def _makes_no_graph(run: Evidence, row: Row, line: CallSite) -> bool:
    """Return whether a line in the forward of a row has operators, and none of them makes a graph."""
    work = run.summary.work
    return _has_no_graph(run, row) or (work is not None and (line.file, line.line) in work.without_graph)


def _has_no_graph(run: Evidence, row: Row) -> bool:
    size = run.size(row.fqn)
    return size is not None and not size.nodes


def _frozen(run: Evidence) -> set[str]:
    """Return the names of modules that have parameters and make no graph, and those in them: for their results."""
    held = {one.name: one.parameter_bytes for one in run.summary.memory_table}
    found, parents = set[str | None](), dict[str, str | None]()
    for row in run.rows.get(Phase.FORWARD, []):
        parents[row.name] = None if row.parent == row.name else row.parent
        if held.get(row.name) and _has_no_graph(run, row):
            found.add(row.name)
    return {name for name in parents if any(one in found for one in _around(name, parents))}


def _around(name: str | None, parents: Mapping[str, str | None]) -> Iterator[str]:
    while name is not None:
        yield name
        name = parents.get(name)


def _unused_ns(row: Row, backward: Row | None) -> float:
    """Return the least time of a row's calls that have no backward pass.

    They may be the shorter ones, as those of a rollout: the backward tells how long the others take.
    """
    if backward is None:
        return row.total_ns
    part = 1 - min(backward.calls / max(row.calls, 1), 1.0)
    return min(part * row.total_ns, max(row.total_ns - backward.total_ns / BACKWARD_TIMES, 0.0))


RULE = Rule("forward-only", judge, order=46, host_times=False, experiment=less_often)
