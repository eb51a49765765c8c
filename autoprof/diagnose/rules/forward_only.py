"""Rule ``forward-only``: parts of a forward have no backward pass.

The results of such calls may be unused. Metrics can be computed from the outputs at hand, and features of a frozen part
can be kept; a rollout, a teacher or an encoder of negatives needs its calls. Masks, tables and features of the inputs
may be the same in each step, or depend on the batch. Nothing tells these apart, so it is a note.

Finds, above a bound:

- modules of which some forwards have a backward pass and others have none, with the lines that call them; or of which
  none has one, though each makes a graph in a model that is trained: 10 % of the step in those without. A note.
- modules and lines in the forward of a trained model that make no graph, as a frozen part, masks, tables and features
  of the inputs: 10 % of the step. A note.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ...base.frame import Phase
from ...base.summary import Finding, Row
from ...base.units import format_count, format_ms, format_percent
from .. import Evidence, Rule, less_often
from .._bounds import MIN_SHARE, MOST
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
        if row.name in trained and is_above(_unused_ns(run, row, backward.get(row.name)) / step_ns, MIN_SHARE)
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
    """Judge the time of the forwards that make no graph, of all modules together."""
    trained = {row.name for row in run.rows.get(Phase.BACKWARD, [])}
    if not trained:
        return None
    rows = {row.name: row for row in run.rows.get(Phase.FORWARD, []) if row.fqn is not None}
    times, lines, step_ns = Counter[str](), dict[tuple[str, int], CallSite](), max(run.summary.step_mean_ns, 1)
    around = {
        row.name: whole
        for row in rows.values()
        if row.name not in trained and (whole := _outermost_without_graph(run, rows, row)) is not None
    }
    for name, whole in around.items():
        times[whole.name] += round(rows[name].self_ns / run.summary.steps)
    for row, line, time_ns in run.lines_in_forward():
        is_part = _is_code(run, row) and _makes_no_graph(run, line)
        if row.name in around or is_part:
            before = lines.get((line.file, line.line), replace(line, count=0, ns=0))
            both = before.count + line.count, before.ns + round(time_ns)
            lines[line.file, line.line] = replace(before, count=both[0], ns=both[1])
            times[row.name] += 0 if row.name in around else round(time_ns)
    whole_ns = sum(times.values())
    if not is_above(whole_ns / step_ns, MIN_SHARE):
        return None
    name, most = times.most_common(1)[0]
    longest = sorted(lines.values(), key=lambda line: -line.ns)
    table = StackTable(sum(line.count for line in longest), sum(line.ns for line in longest), tuple(longest[:3]))
    where = f", most of it in {name}" if most >= MOST * whole_ns else ""
    where += f": {table.describe(table.ns / step_ns)}" if table.named else ""
    held = {one.name: one.parameter_bytes for one in run.summary.memory_table}
    return Finding(
        "forward-only",
        "note",
        f"{format_ms(whole_ns)} ({format_percent(whole_ns / step_ns)} of the step) in the forward are work without a "
        f"gradient{where}",
        "where the same inputs come again to a part that does not change, keep its results: compute them once for the "
        "whole dataset"
        if held.get(name) and name not in trained
        else "what is the same in each step, as a mask or a table: compute it once and keep it as a buffer, and what "
        "several layers need once for all of them; features of the batch alone can be made in the loader's workers, or "
        "once for the whole dataset",
        name,
        Phase.FORWARD,
        evidence=table.evidence(),
    )


def _makes_no_graph(run: Evidence, line: CallSite) -> bool:
    """Return whether a line has operators, and none of them makes a graph."""
    work = run.summary.work
    return work is not None and (line.file, line.line) in work.without_graph


def _is_code(run: Evidence, row: Row) -> bool:
    """Return whether the lines sampled in a row are its own, and not the one that calls a layer of torch."""
    size = run.size(row.fqn)
    return size is not None and not size.kind.startswith("torch.")


def _outermost_without_graph(run: Evidence, rows: Mapping[str, Row], row: Row | None) -> Row | None:
    """Return the outermost module that makes no graph, of a row and those around it."""
    found = None
    while row is not None:
        size = run.size(row.fqn)
        found = row if size is not None and not size.nodes else found
        row = None if row.parent in (None, row.name) else rows.get(row.parent)
    return found


def _unused_ns(run: Evidence, row: Row, backward: Row | None) -> float:
    """Return the least time of a row's calls that have no backward pass.

    They may be the shorter ones, as those of a rollout: the backward tells how long the others take.
    """
    if backward is None:
        return row.total_ns
    part = 1 - min(backward.calls / max(row.calls, 1), 1.0)
    if row.fqn == "" and run.summary.work is not None and run.summary.work.alike:
        return part * row.total_ns
    return min(part * row.total_ns, max(row.total_ns - backward.total_ns / BACKWARD_TIMES, 0.0))


RULE = Rule("forward-only", judge, order=46, host_times=False, experiment=less_often)
