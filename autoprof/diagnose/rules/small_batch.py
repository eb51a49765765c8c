"""Rule ``small-batch``: on the CPU each module does so little that calling it takes longer than its arithmetic."""

from __future__ import annotations

from typing import Final

from ..._stats.intervals import Interval
from ..._units import format_ms, format_ns, format_percent
from ...frame import Phase
from ...summary import Finding, Row
from .._contention import contention
from .._evidence import Evidence
from .._experiment import Experiment
from .._rule import Rule
from .._thresholding import abstain, classify

MAX_CALL_NS: Final = 30_000
"""Forward and backward of a module without children, from which its arithmetic may be the longer part. Measured on a
CPU: 15 µs for a linear layer or an activation of 8 values, where nearly all is Python, the dispatcher and autograd."""
MIN_SHARE: Final = 0.5
"""Share of forward, backward and optimizer in the step: where others take longer, the batch is not the matter."""
MIN_CORES: Final = 0.8
"""Processors in use, or waited for: a process that sleeps has another problem."""
MAX_FLOPS_PER_S: Final = 2e9
"""A core does ten times as much in products of matrices: from here on arithmetic takes a good part of the time, and
the model may have modules that are not called."""
MANY_CALLS: Final = 8
"""Calls of the whole model in one backward pass from which its batch is in pieces: putting them together saves calls
whatever the arithmetic in each is."""
LOOP_CALLS: Final = 8
"""Calls of each module in a forward of the model from which it loops over time steps or tokens. Such a loop has about
as many operations of its own between the calls as in them."""
MIN_STEPS: Final = 5
"""Recorded steps: a call of a module in each of them is known well from fewer steps than a step is."""
MIN_CALLS: Final = 8
"""Where a step calls few modules, the loop's own statements are as long as these calls."""

_TOGETHER: Final = "call it once with the whole batch (torch.stack, torch.func.vmap) where no call needs another; "
_UNROLLED: Final = "replace the loop by operations on the whole sequence (nn.LSTM, one product for all steps); "


def judge(run: Evidence) -> Finding | None:
    """Judge the mean time of the model's smallest modules in forward and backward."""
    leaves, used, summary = run.facts.leaf_modules, contention(run), run.summary
    rows = [row for row in summary.rows if row.parent is None and row.fqn is not None and row.phase.traits.in_module]
    if summary.steps < MIN_STEPS or summary.clock == "device" or run.facts.environment.device not in ("", "cpu"):
        return None
    if leaves is None or used is None or not rows:
        return abstain("small-batch", "the time of the whole model, and processor use", "set monitor: auto, on Linux")
    micro_steps = summary.micro_steps or 1
    model_calls = max(_model_calls(rows), float(micro_steps))
    calls = max(leaves * model_calls, _leaf_calls(run))
    if calls < MIN_CALLS * micro_steps:
        return None
    in_pieces = model_calls >= MANY_CALLS * micro_steps
    loops = calls / max(leaves * model_calls, 1)
    waited = used.waiting or 0.0  # a call took that much less processor time, over many steps
    each = Interval(*((1 - waited) * part / calls for part in _total(run, rows)))
    phases = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
    model_ns = sum(summary.phases.get(phase, 0) for phase in phases) / summary.steps
    share = model_ns / max(summary.step_mean_ns, 1)
    computing = used.own + waited
    computed = 0.0 if summary.work is None else (summary.work.flops_per_s or 0.0) / max(1 - waited, 0.01)
    # Where so little was computed, a longer call is no sign of arithmetic, but of further operations around it.
    bound_ns = MAX_CALL_NS * (2 if 0 < computed <= MAX_FLOPS_PER_S else 1) * (2 if loops >= LOOP_CALLS else 1)
    position = classify(Interval.exact(each.middle), bound_ns)
    if position == "above" or share < MIN_SHARE or computing < MIN_CORES:
        return None
    if computed > MAX_FLOPS_PER_S and not in_pieces:
        return None
    if position == "near":
        return abstain("small-batch", "inconclusive: the time of a module is near its bound", "nothing to do")
    return Finding(
        "small-batch",
        "warning",
        f"a step calls the model's {leaves} smallest modules {calls:.0f} times: {format_ns(round(each.middle))} each "
        "for forward and backward. Calling a module takes about that long whatever the batch is: Python and launching "
        "operations take most of "
        f"the {format_ms(model_ns)} ({format_percent(share)} of the step)"
        + (f"; the whole model is called {model_calls:.0f} times a step" if in_pieces else "")
        + (f"; each forward calls them {loops:.0f} times, in a loop{_of_loop(run)}" if loops >= LOOP_CALLS else ""),
        (_TOGETHER if in_pieces else _UNROLLED if loops >= LOOP_CALLS else "")
        + "a larger batch takes nearly the same time, so each sample costs less; or torch.compile, or fewer and larger "
        "modules",
        # The time of as many samples in batches twice as large.
        gain_ns=round(model_ns / 2),
        evidence={
            "call_ns": round(each.middle),
            "bound_ns": bound_ns,
            "leaves": leaves,
            "model_calls": round(model_calls, 1),
            "cores": round(computing, 2),
            "steps": summary.steps,
        },
    )


def _model_calls(rows: list[Row]) -> float:
    """Return the calls of the whole model in a step; 1 where the model is called in several parts."""
    forward = [row for row in rows if row.phase is Phase.FORWARD]
    return forward[0].calls / max(forward[0].steps, 1) if len(forward) == 1 else 1.0


def _leaf_calls(run: Evidence) -> float:
    """Return the calls in a step of the modules with rows that hold no others, as far as there are rows."""
    forward = [row for row in run.rows.get(Phase.FORWARD, []) if row.fqn is not None]
    holding = {row.parent for row in forward}
    return sum(row.calls / max(row.steps, 1) for row in forward if row.name not in holding)


def _of_loop(run: Evidence) -> str:
    """Return the clause that names the module that calls another most often in a forward; empty without rows."""
    forward = {row.name: row for row in run.rows.get(Phase.FORWARD, []) if row.fqn is not None}
    inner = [row for row in forward.values() if row.parent in forward]
    most = max(inner, key=lambda row: row.calls / max(forward[str(row.parent)].calls, 1), default=None)
    return "" if most is None else f" of {most.parent}"


def _total(run: Evidence, rows: list[Row]) -> Interval:
    times = [run.row_time(row) for row in rows]
    return Interval(*(sum(time[at] for time in times) for at in range(3)))


RULE = Rule(
    "small-batch",
    judge,
    order=62,
    needs_steps=False,  # judged above
    experiment=Experiment("batch_size", "increase", quantity="sample_ns"),
)
