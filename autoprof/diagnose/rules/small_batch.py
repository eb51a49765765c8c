"""Rule ``small-batch``: on the CPU each module does so little that calling it takes longer than its arithmetic."""

from __future__ import annotations

from typing import Final

from ..._stats.intervals import Interval
from ..._units import format_ms, format_ns, format_percent
from ...frame import Phase
from ...summary import Finding, Row, Summary
from .._contention import contention
from .._evidence import Evidence
from .._rule import Defect, Rule
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
MIN_LEAVES: Final = 8
"""In a model of a few modules the loop's own statements are as long as its calls."""


def judge(run: Evidence) -> Finding | None:
    """Judge the mean time of the model's smallest modules in forward and backward."""
    leaves, used, summary = run.facts.leaf_modules, contention(run), run.summary
    rows = [row for row in summary.rows if row.parent is None and row.fqn is not None and row.phase.traits.in_module]
    if summary.clock == "device" or run.facts.environment.device not in ("", "cpu"):
        return None
    if leaves is None or used is None or not rows:
        return abstain("small-batch", "the time of the whole model, and processor use", "set monitor: auto, on Linux")
    if leaves < MIN_LEAVES:
        return None
    calls = leaves * (summary.micro_steps or 1)
    each = _total(run, rows)
    each = Interval(*(part / calls for part in each))
    phases = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
    model_ns = sum(summary.phases.get(phase, 0) for phase in phases) / summary.steps
    share = model_ns / max(summary.step_mean_ns, 1)
    computing = used.own + (used.waiting or 0.0)
    computed = 0.0 if summary.work is None else summary.work.flops_per_s or 0.0
    position = classify(Interval.exact(each.middle), MAX_CALL_NS)
    if position == "above" or share < MIN_SHARE or computing < MIN_CORES or computed > MAX_FLOPS_PER_S:
        return None
    if position == "near":
        return abstain("small-batch", "inconclusive: the time of a module is near its bound", "nothing to do")
    return Finding(
        "small-batch",
        "warning",
        f"the model's {leaves} smallest modules take {format_ns(round(each.middle))} each for forward and backward. "
        "Calling a module takes about that long whatever the batch is: Python and launching operations take most of "
        f"the {format_ms(model_ns)} ({format_percent(share)} of the step)",
        "a larger batch takes nearly the same time, so each sample costs less; or torch.compile, or fewer and larger "
        "modules",
        # The time of as many samples in batches twice as large.
        gain_ns=round(model_ns / 2),
        evidence={
            "call_ns": round(each.middle),
            "bound_ns": MAX_CALL_NS,
            "leaves": leaves,
            "cores": round(computing, 2),
            "steps": summary.steps,
        },
    )


def _total(run: Evidence, rows: list[Row]) -> Interval:
    times = [run.row_time(row) for row in rows]
    return Interval(*(sum(time[at] for time in times) for at in range(3)))


def train_with_tiny_modules(broken: bool) -> Summary:
    """Judge a training as with 72,000 modules of 10 µs; in the healthy twin there are 8 modules of 90 ms."""
    from ...demo.defects import diagnose_again, four_layers, train
    from ...summary import MetricStats
    from ...testing import FakeClock
    from .._environment import Environment

    clock = FakeClock()
    values = {"host_cpu_cores": 1.0, "host_cpu_busy": 0.5, "host_cpu_waiting": 0.0}
    metrics = {name: MetricStats(value, value, value, value, 5) for name, value in values.items()}
    return diagnose_again(
        train(four_layers(clock), clock),
        metrics=metrics,
        environment=Environment("cpu", machine_cores=2),
        leaf_modules=72_000 if broken else 8,
    )


RULE = Rule(
    "small-batch",
    judge,
    order=62,
    defects=(Defect("a batch of one sample", train_with_tiny_modules),),
)
