"""Rule ``launch-bound``: the device's queue is empty for a good part of the step, and the host sets the pace.

Finds, above a bound:

- an empty queue: the device waits for the host: 30 %.
"""

from __future__ import annotations

from ...base.frame import TRAINING_LANE, Phase
from ...base.stats.intervals import Interval
from ...base.summary import Finding
from ...base.units import format_percent
from .. import Evidence, ExceededBound, Experiment, Rule, abstain, threshold_time
from .._bounds import FULL, LARGE_SHARE, NEARLY_ALL


def judge(run: Evidence) -> Finding | None:
    """Judge the time with an empty queue, without the wait for data."""
    if run.summary.clock != "device":
        return abstain("launch-bound", "a device's clock", "nothing to do when the model trains on the CPU")
    bound = [
        (row.host_bound * row.total_ns, row)
        for row in run.summary.rows
        if row.host_bound is not None and row.lane == TRAINING_LANE and row.phase is not Phase.DATA
    ]
    if not bound:
        return abstain("launch-bound", "spans with the launch lag", "name the model's modules as targets")
    total_ns = sum(part for part, row in bound if row.parent is None)
    ns = total_ns / run.summary.steps
    fraction = ns / max(run.summary.step_mean_ns, 1)  # of the mean step: a few long ones may exceed the median step
    time = Interval(*(fraction * length for length in run.step_time))
    found = threshold_time("launch-bound", run, time, ns, LARGE_SHARE)
    if not isinstance(found, ExceededBound):
        return found
    # The innermost row that has nearly all of it, else the one with most.
    inner = [row for part, row in bound if part >= NEARLY_ALL * total_ns]
    longest = min(inner, key=lambda row: row.total_ns) if inner else max(bound, key=lambda one: one[0])[1]
    place = f", nearly all of it in the {longest.phase} of {longest.name}" if inner else ""
    use = run.summary.metrics.get("gpu_utilization")
    share = format_percent(found.mean_share)
    if use is not None and use.mean >= FULL:  # the queue was short, but the device was not idle because of it
        busy = format_percent(use.mean)
        missing = f"inconclusive: the queue was empty for {share} of the step, but NVML saw the device busy {busy}"
        return abstain("launch-bound", missing, "nothing to do while the device is busy", found.evidence)
    busy = "" if use is None else f"; NVML saw the device busy for {format_percent(use.mean)} of the time"
    return found.finding(
        f"for at most {share} of the step the device had no work: its queue was empty and it waited for the host to "
        f"launch work or to read a value{place}{busy}",
        "a larger batch, torch.compile (mode='reduce-overhead' replays CUDA graphs), fused operators; read no values "
        "(.item(), .cpu(), print) inside the step",
        name=longest.name,
        evidence={} if use is None else {"gpu_utilization": round(use.mean, 3)},
    )


RULE = Rule(
    "launch-bound",
    judge,
    order=70,
    needs_device=True,
    experiment=Experiment("batch_size", "increase", quantity="sample_ns"),
)
