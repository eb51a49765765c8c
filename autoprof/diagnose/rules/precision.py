"""Rule ``precision``: float32 arithmetic fills the step, on a device that is several times as fast in 16 bits.

Finds, above a bound:

- float32 arithmetic that fills the step even at the device's peak, where 16 bits have a higher peak: 25 % of the
  step.
- products and convolutions in float64, on any device, in a model that is half of the step: 10 % of the step less in
  float32;
- those in bfloat16, on a CPU without instructions for it: 10 % of the FLOPs, in such a model.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ...base.frame import Phase
from ...base.stats.intervals import Interval
from ...base.summary import Finding, Work
from ...base.units import format_ms, format_percent
from .. import Evidence, ExceededBound, Experiment, Rule, abstain, threshold_time
from .._bounds import GOOD_PART, MIN_SHARE, MOST, NEARLY_ALL, SEVERAL
from .._thresholding import counted_work

MIN_FLOPS_PER_S: Final = 1e9
"""Below this, Python and memory take the time, and not arithmetic."""


def judge(run: Evidence) -> Finding | None:
    """Judge the time that the float32 work takes even at the device's peak."""
    work = counted_work("precision", run)
    if isinstance(work, Finding):
        return work
    slow = _judge_double(run, work) or _judge_bfloat16(run, work)
    if slow is not None:
        return slow
    if work.peak is None or work.mfu is None:
        missing = f"the device's peak: {work.no_peak}" if work.no_peak else "the device's peak"
        return abstain("precision", missing, "nothing to do when the model trains on the CPU")
    kinds = [kind for kind in work.kinds if kind.dtype == "float32"]
    peak_ns = sum(kind.peak_ns or 0.0 for kind in kinds)
    half_ns = sum(kind.half_ns or 0.0 for kind in kinds)
    found = threshold_time("precision", run, Interval.exact(peak_ns), peak_ns, GOOD_PART)
    if not isinstance(found, ExceededBound):
        return found
    return found.finding(
        f"matrix products and convolutions in float32 take at least {format_ms(peak_ns)} "
        f"({format_percent(found.mean_share)} of the step) even at this device's peak ({work.peak}); in 16 bits they "
        f"would take {format_ms(half_ns)} at the peak",
        "use torch.autocast around the forward and the loss, with bfloat16 if the device supports it (float16 also "
        "needs a GradScaler); or at least torch.set_float32_matmul_precision('high') if TF32 is off",
        gain_ns=peak_ns - half_ns,
        evidence={"half_ns": round(half_ns), "flops": sum(kind.flops for kind in kinds), "peak": work.peak},
    )


class _TypeWork(NamedTuple):
    """The products and convolutions of one type: their FLOPs, as a part of all, and the model's part of the step."""

    flops: int
    part: float
    model_ns: float
    share: float


def _work_in(
    dtype: str, run: Evidence, work: Work, bound: float, flops_per_s: float = MIN_FLOPS_PER_S
) -> _TypeWork | None:
    """Return the work of a type that has this part of all, in a model whose arithmetic takes most of the step."""
    summary = run.summary
    flops, all_flops = (sum(kind.flops for kind in work.kinds if one in ("", kind.dtype)) for one in (dtype, ""))
    model_ns = sum(summary.phases.get(phase, 0) for phase in (Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD))
    share = model_ns / max(summary.total_step_ns, 1)
    if not flops or flops < bound * all_flops or share < MOST or (work.flops_per_s or 0.0) < flops_per_s:
        return None
    return _TypeWork(flops, flops / all_flops, model_ns / summary.steps, share)


def _judge_double(run: Evidence, work: Work) -> Finding | None:
    """Find a model that computes in float64, or a part of one, on any device.

    If float64 takes twice as long, a part p of the FLOPs has 2 p of 1 + p of the time, and half of it is saved.
    """
    found = _work_in("float64", run, work, MIN_SHARE)
    gain = 0.0 if found is None else found.part / (1 + found.part)
    if found is None or gain * found.share < MIN_SHARE:
        return None
    return Finding(
        "precision",
        "warning",
        f"{format_percent(found.part)} of the products and convolutions are in float64{_where(work, found.flops)}, in "
        f"a model that takes {format_percent(found.share)} of the step; float64 takes at least twice as long as "
        "float32 on a CPU, up to 64 times on a GPU, and twice the memory",
        "unless the results need it: model.float() and inputs in float32. numpy makes float64: convert its arrays with "
        "torch.as_tensor(array, dtype=torch.float32)",
        gain_ns=round(found.model_ns * gain),
        evidence={"flops": found.flops, "share": round(found.share, 4), "bound": MIN_SHARE, "steps": run.summary.steps},
    )


def _judge_bfloat16(run: Evidence, work: Work) -> Finding | None:
    """Find work in bfloat16 on a CPU that converts it; the gain is half of its part, whatever it takes in float32."""
    environment = run.facts.environment
    if environment.device != "cpu" or environment.has_bfloat16 is not False:
        return None
    # In float32 the same work would have several times the rate.
    found = _work_in("bfloat16", run, work, MIN_SHARE, MIN_FLOPS_PER_S / SEVERAL)
    if found is None:
        return None
    return Finding(
        "precision",
        "warning",
        f"{format_percent(found.part)} of the products and convolutions are in bfloat16, for which this CPU has no "
        "instructions: they are computed by conversion and take longer than in float32, often several times as long, "
        f"in a model that takes {format_percent(found.share)} of the step",
        "compute in float32 on this machine: torch.autocast with enabled=False, or model.float(); bfloat16 is fast on "
        "a CPU with avx512_bf16, amx_bf16 or, on ARM, bf16 (torch.cpu.get_capabilities())",
        gain_ns=round(found.part * found.model_ns / 2),
        evidence={"flops": found.flops, "share": round(found.part, 4), "bound": MIN_SHARE, "steps": run.summary.steps},
    )


def _where(work: Work, flops: int) -> str:
    """Return the innermost module that has nearly all of the float64 work as a clause; empty where several share it."""
    names = [row for row in work.rows if row.double_flops >= NEARLY_ALL * flops]
    least = min(names, key=lambda row: sum(row.flops.values()), default=None)
    return "" if least is None else f", nearly all of them in {least.name}"


def _experiment(finding: Finding) -> Experiment:
    """Return the next shorter type: half of the float32 time is known only where 16 bits are faster."""
    return Experiment("precision", value="bfloat16" if "half_ns" in finding.evidence else "float32")


RULE = Rule("precision", judge, order=80, experiment=_experiment)
