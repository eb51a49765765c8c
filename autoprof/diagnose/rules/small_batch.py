"""Rule ``small-batch``: on the CPU each module does so little that calling it takes longer than its arithmetic.

Finds, above a bound:

- on the CPU: calling the model's modules without children takes most of their time: 30 µs or less each for forward
  and backward, twice that where FLOPs show little arithmetic; twice that again in a loop of 8 calls or more; or such a
  loop, or 8 micro-batches, whose operators are launched for most of the time; half of the step, 0.8 processors in use.
"""

from __future__ import annotations

from typing import Final

from ...base.frame import Phase
from ...base.summary import Finding, Row
from ...base.units import format_ms, format_ns, format_percent
from .. import Evidence, Experiment, Rule, abstain
from .._bounds import LONG_STEP, MANY, MARGIN, MOST, NEARLY_ALL
from .._contention import contention

MAX_CALL_NS: Final = 30_000
"""Forward and backward of a module without children, from which its arithmetic may be the longer part. Measured on a
CPU: 15 µs for a linear layer or an activation of 8 values, where nearly all is Python, the dispatcher and autograd."""
MAX_FLOPS_PER_S: Final = 2e9
"""A core does ten times as much in products of matrices: from here on arithmetic takes a good part of the time."""


_PHASES: Final = (Phase.FORWARD, Phase.BACKWARD)


def judge(run: Evidence) -> Finding | None:
    """Judge the mean time of the model's smallest modules in forward and backward."""
    leaves, used, summary = run.facts.leaf_modules, contention(run), run.summary
    rows = [row for row in summary.rows if row.parent is None and row.fqn is not None and row.phase.traits.in_module]
    if summary.clock == "device" or run.facts.environment.device not in ("", "cpu"):
        return None
    if leaves is None or used is None or not rows:
        return abstain("small-batch", "the time of the whole model, and processor use", "set monitor: auto, on Linux")
    micro_steps, used_part = summary.micro_steps or 1, _used_part(rows)
    model_calls = max(used_part * _model_calls(rows), float(micro_steps))
    calls = max(leaves * model_calls, used_part * _leaf_calls(run))
    waited = used.waiting or 0.0  # a call took that much less processor time, over many steps
    parts = {row: used_part if row.phase is Phase.FORWARD else 1.0 for row in rows}
    median_ns = (1 - waited) * sum(part * run.row_time(row).middle for row, part in parts.items())
    # Other programs on the processor's cores make a call longer, up to twice, and the shortest step the least.
    model_ns = min(median_ns, max(sum(part * row.min_ns for row, part in parts.items()), median_ns / LONG_STEP))
    # The rows of recorded steps include the cost of recording them; a step that is not recorded is that much shorter.
    unrecorded = min(summary.run_mean_ns / max(summary.step_mean_ns, 1), 1.0)
    each_ns = unrecorded * model_ns / max(calls, 1)
    phases = (*_PHASES, Phase.OPTIMIZER)
    unused_ns = sum((1 - parts[row]) * row.total_ns for row in rows)
    update_ns = (sum(summary.phases.get(phase, 0) for phase in phases) - unused_ns) / summary.steps
    share, computing = update_ns / max(summary.step_mean_ns, 1), used.own + waited
    flops_per_s = 0.0 if summary.work is None else (summary.work.flops_per_s or 0.0) / max(1 - waited, 0.01)
    # From as many calls of the whole model in a backward pass its batch is in pieces, as it is in micro-batches of
    # little work; from as many of each module in a forward the model loops over time steps or tokens.
    launched = _is_launched(run)
    by_micro_batches = launched and MANY <= model_calls < MANY * micro_steps
    in_pieces = by_micro_batches or model_calls >= MANY * micro_steps
    loops = in_pieces or calls >= MANY * leaves * model_calls
    # Where others take longer than the model, the batch is not the matter; a process that sleeps, and neither uses
    # processors nor waits for them, has another problem.
    if calls < MANY * micro_steps or share < MOST or computing < NEARLY_ALL:
        return None
    if flops_per_s > MAX_FLOPS_PER_S and not in_pieces:
        return None
    # Where so little was computed, a longer call is no sign of arithmetic, but of further operations around it; so it
    # is in a loop.
    bound_ns = MAX_CALL_NS * (2 if 0 < flops_per_s <= MAX_FLOPS_PER_S else 1) * (2 if loops else 1)
    if each_ns > bound_ns * (1 - MARGIN) and not (loops and launched):
        return None
    pieces = f"; the whole model is called {model_calls:.0f} times a step" if in_pieces else ""
    larger = "a larger batch takes nearly the same time"
    if by_micro_batches:
        pieces += f", for {micro_steps:.0f} micro-batches"
        larger = "fewer, larger micro-batches take nearly the same time each"
    return Finding(
        "small-batch",
        "warning",
        f"a step calls the model's {leaves} smallest modules {calls:.0f} times: {format_ns(round(each_ns))} each for "
        "forward and backward. Calling a module takes about that long whatever the batch is: Python and launching "
        f"operations take most of the {format_ms(update_ns)} ({format_percent(share)} of the step){pieces}",
        f"{larger}, so each sample costs less; or one call for the whole batch or sequence "
        "instead of a loop (torch.stack, torch.func.vmap, nn.LSTM), torch.compile, or fewer, larger modules",
        gain_ns=round(update_ns / 2),  # the time of as many samples in batches twice as large
        evidence={
            "call_ns": round(each_ns),
            "bound_ns": bound_ns,
            "leaves": leaves,
            "model_calls": round(model_calls, 1),
            "cores": round(computing, 2),
            "steps": summary.steps,
        },
    )


def _used_part(rows: list[Row]) -> float:
    """Return the part of the model's calls that have a backward pass: a rollout's batch is no choice of the training.

    1 where none of them has one.
    """
    forwards, passes = (sum(row.calls for row in rows if row.phase is phase) for phase in _PHASES)
    return min(passes / forwards, 1.0) if forwards and passes else 1.0


def _model_calls(rows: list[Row]) -> float:
    """Return the calls of the whole model in a step; 1 where the model is called in several parts."""
    forward = [row for row in rows if row.phase is Phase.FORWARD]
    return forward[0].calls / max(forward[0].steps, 1) if len(forward) == 1 else 1.0


def _is_launched(run: Evidence) -> bool:
    """Return whether launching operators explains most of the modules' time, and more of it than their arithmetic."""
    costs = [cost for cost in run.costs.values() if cost.work is not None]
    launch_ns = sum(cost.launch_ns for cost in costs)
    return launch_ns > max(MOST * sum(cost.ns for cost in costs), sum(cost.arithmetic_ns for cost in costs))


def _leaf_calls(run: Evidence) -> float:
    """Return the calls in a step of the modules with rows that hold no others, as far as there are rows."""
    forward = [row for row in run.rows.get(Phase.FORWARD, []) if row.fqn is not None]
    holding = {row.parent for row in forward}
    return sum(row.calls / max(row.steps, 1) for row in forward if row.name not in holding)


RULE = Rule("small-batch", judge, order=62, experiment=Experiment("batch_size", "increase", quantity="sample_ns"))
