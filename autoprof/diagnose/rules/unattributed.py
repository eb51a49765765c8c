"""Rule ``unattributed``: much of the step is in no module, loader, optimizer or span; names the lines that ran.

Finds, above a bound:

- time in no module, loader, optimizer or span, or of some steps only, and the lines that ran then: 15 %. A note where
  torch's layers, a backward pass, an update or a custom function of autograd runs there, which may be a loss, and where
  no line has a tenth of the run.
- operators outside of the model and their backward together: 15 %. A note.
- backward in no module, of lines of the program: 15 %.
- backward of operators outside of the model, in which no line of the program runs: 30 %.
"""

from __future__ import annotations

from typing import Final

from ...base.frame import BACKWARD_NAME, MODULE_PHASES, Phase
from ...base.stats.intervals import Interval
from ...base.summary import Finding
from ...base.units import count, format_ms
from ...probes.stacks import OF_FUNCTION
from .. import Evidence, ExceededBound, Experiment, Rule, abstain, classify, less_often, threshold_rows, threshold_time
from .._bounds import LARGE_SHARE, MANY_OPERATORS, MAX_BESIDE, MIN_SAMPLES, MIN_SHARE, MOST, SEVERAL
from .._contention import own_time_ns
from .._stacks import UNATTRIBUTED
from .._thresholding import is_above, threshold_phase

_COMPUTE_LESS: Final = (
    "look for copies, loops in Python and small operators there. What is not needed in each step: do it less often, or "
    "outside of the training step: in the loader's workers, on another thread"
)
_WAIT_LESS: Final = (
    "leave out sleeps, hand work to another thread or process without waiting for its end, or wait less often"
)


def judge(run: Evidence) -> Finding | None:
    """Judge the mean time in no span, or that of some steps, without the times that other rules judge."""
    explained_ns, mean_ns = _explained_ns(run), run.summary.phases.get(Phase.OTHER, 0) / run.summary.steps
    measured = run.series.mean(Phase.OTHER) if run.series.steps else Interval.exact(mean_ns)
    rest, mean_ns = (Interval(*(max(part - explained_ns, 0.0) for part in measured)), max(mean_ns - explained_ns, 0.0))
    step = Interval.exact(run.summary.step_mean_ns)
    found = threshold_phase(
        "unattributed", run, rest, mean_ns, MAX_BESIDE, Phase.OTHER, step=step, explained_ns=explained_ns
    )
    if not isinstance(found, ExceededBound):
        return found if run.facts.trains_copy else _judge_backward(run) or _judge_loss(run, mean_ns) or found
    if run.facts.trains_copy:
        return abstain("unattributed", "the modules of a copy of the model, which trains", "instrument the copy")
    table = run.facts.stacks.get(UNATTRIBUTED)
    if table is None or not table.named:
        samples = 0 if table is None else table.samples
        if found.rare is None and samples >= MIN_SAMPLES:  # many lines, as of any loop, each of which takes a little
            return abstain(
                "unattributed",
                f"a line with a good part of {found}: {count(samples, 'sample')} of the stack are of many",
                "a longer run shows whether one of them takes more",
                found.evidence,
            )
        return found.finding(
            f"{found} are in no module, loader, optimizer or span; its stack has {count(samples, 'sample')}, too few "
            "to name the lines",
            'put with autoprof.span("…"): around the code between them to see which part takes the time',
        )
    where = f"{found} are in no module, loader, optimizer or span: {table.describe(found.mean_share)}"
    if table.is_torch_work:
        return found.finding(
            f"{where}; there torch runs layers that are not part of the model, a backward pass, or an optimizer that "
            "was not given",
            'with autoprof.span("…"): gives it a row of its own; where its inputs come again, keep the results',
            name=table.dominant,
            evidence=table.evidence(),
            is_note=True,
        )
    # The longest line certainly has a tenth of the run, or many lines take a part of a loop each.
    is_note = table.dominant is None and table.share_low(table.named[0]) * found.mean_share < MIN_SHARE
    # The backward of such a function is code of the program, and shows nothing of a loss's.
    is_note |= sum(line.ns for line in table.innermost if line.function.endswith(OF_FUNCTION)) > MOST * table.ns
    where += table.described_waits
    nodes, backward_ns = _nodes_outside(run), _backward_ns(run)
    if backward_ns >= MIN_SHARE * run.summary.step_mean_ns:
        where += f"; the backward of operators outside of the model takes {format_ms(backward_ns)} more"
        # A loss computes with a few large operators, whose backward takes as long.
        is_note |= nodes is not None and nodes < MANY_OPERATORS and found.mean_ns <= SEVERAL * backward_ns
    return found.finding(
        where,
        (_WAIT_LESS if table.named[0] in table.blocked else _COMPUTE_LESS)
        + (", every Nth step" if found.rare is None else "")
        + '; with autoprof.span("…"): gives it a row of its own',
        name=table.dominant,
        gain_ns=found.mean_ns * (table.share(table.named[0]) if table.dominant is None else 1.0),
        evidence=table.evidence(),
        is_note=is_note,
    )


def _judge_backward(run: Evidence) -> Finding | None:
    """Judge backward in no module: code of the program that it calls, or operators outside of the model."""
    rows = [row for row in run.rows.get(Phase.BACKWARD, []) if row.name == BACKWARD_NAME]
    found = threshold_rows("unattributed", run, rows, MAX_BESIDE) if rows else None
    table = run.facts.stacks.get(f"{Phase.BACKWARD} {BACKWARD_NAME}")
    if not isinstance(found, ExceededBound) or table is None or not table.named:
        return None
    if run.series.growth(MODULE_PHASES) is not None:
        return None  # it grows with the graphs of earlier steps
    own = table.code_in_backward
    share = own.lines_share
    if is_above(share * found.mean_share, MAX_BESIDE):
        return found.finding(
            f"{found} are in the backward pass, but in no module: {own.describe(found.mean_share)}",
            "look at these lines: an autograd function or a hook of a tensor, which the backward pass calls in each "
            "step",
            name=own.dominant,
            gain_ns=found.mean_ns * share,
            evidence=own.evidence(),
        )
    if classify(found.share, LARGE_SHARE) != "above":
        return None
    outside, nodes = run.facts.stacks.get(UNATTRIBUTED), _nodes_outside(run)
    many = f" ({nodes:.0f} in each step)" if nodes is not None and nodes >= MANY_OPERATORS else ""
    lines = "" if outside is None or not outside.named else f", as of {outside.described}"
    return found.finding(
        f"{found} are in the backward pass, but in no module, and no code of the program runs there: it is the "
        f"backward of operators outside of the model{many}{lines}",
        "look at the operators on the model's output or its parameters before loss.backward(), as a loss or a "
        "penalty is",
        name=table.dominant if outside is None or outside.dominant is None else outside.dominant,
        evidence=table.evidence(),
        is_note=nodes is not None and not many,
    )


def _judge_loss(run: Evidence, outside_ns: float) -> Finding | None:
    """Judge the operators outside of the model together with their backward, each of which takes less alone."""
    table, backward_ns = run.facts.stacks.get(UNATTRIBUTED), _backward_ns(run)
    ns = outside_ns + backward_ns
    if not _nodes_outside(run) or run.facts.world_size > 1:  # whose reductions are in the backward pass
        return None
    if backward_ns < MIN_SHARE * ns or table is None or not table.named or table.is_torch_work or table.blocked:
        return None
    judged = threshold_time("unattributed", run, Interval.exact(ns), ns, MAX_BESIDE, Phase.OTHER)
    if not isinstance(judged, ExceededBound):
        return None
    return judged.finding(
        f"{judged} are in operators outside of the model and in their backward: "
        f"{table.describe(outside_ns / run.summary.step_mean_ns)}",
        "is all that they compute used, and would fewer operators or smaller tensors do?",
        name=table.dominant,
        evidence=table.evidence(),
        is_note=True,
    )


def _nodes_outside(run: Evidence) -> float | None:
    """Return how many nodes of autograd a step makes outside of the model's modules; None where that is not known."""
    made, forward = run.facts.nodes, run.rows.get(Phase.FORWARD, [])
    if run.rows.get(Phase.RECOMPUTE):
        return None  # it makes the nodes of the forward again
    modules = {row.name for row in forward if row.fqn is not None}
    for row in (row for row in forward if row.name in modules and row.parent not in modules):
        size = run.size(row.fqn)
        made = None if size is None or made is None else made - size.nodes * row.calls / run.summary.steps
    return made


def _backward_ns(run: Evidence) -> float:
    """Return the time of a step in the backward of operators outside of the model, without code of the program."""
    rows = [row for row in run.rows.get(Phase.BACKWARD, []) if row.name == BACKWARD_NAME]
    table = run.facts.stacks.get(f"{Phase.BACKWARD} {BACKWARD_NAME}")
    own = 0.0 if table is None else table.code_in_backward.lines_share
    return sum(row.self_ns for row in rows) * (1 - own) / run.summary.steps


def _explained_ns(run: Evidence) -> float:
    """Return the time of a step outside all spans that other rules judge: logging, waits, and autoprof's own work."""
    logs, waits = run.facts.logs, run.facts.waits
    return own_time_ns(run) + (0 if logs is None else logs.mean_ns) + (0 if waits is None else waits.mean_cost_ns)


def _experiment(finding: Finding) -> Experiment:
    """Return the call to make less often, or a span that finds it where no line is known."""
    return less_often(finding) if finding.evidence.get("lines") else Experiment("span.add", "edit")


RULE = Rule("unattributed", judge, order=132, experiment=_experiment)
