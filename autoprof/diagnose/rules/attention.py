"""Rule ``attention``: attention that stores all its scores, unfused or by the math kernel of SDPA."""

from __future__ import annotations

from typing import Final

from ..._core.units import count, format_percent
from ..._stats.intervals import Interval
from ...summary import Finding, UnfusedAttention
from .._evidence import Evidence
from .._experiment import Experiment
from .._rule import Rule
from .._thresholding import abstain, classify, counted_work

MAX_SHARE: Final = 0.10
"""FLOPs of the products of scores and weights over those of the forward. In a transformer of width d they are
n / (6 d + n) for n tokens: a tenth at two thirds of the width, where the scores are as large as the activations
between the layers."""


def judge(run: Evidence) -> Finding | None:
    """Judge the share of unfused attention in the forward's FLOPs."""
    if run.summary.clock != "device":
        return abstain("attention", "a device's clock", "on the CPU either form may be faster: measure both")
    work = counted_work("attention", run)
    if isinstance(work, Finding):
        return work
    forward = work.flops.get("forward", 0)
    if not work.attention or not forward:
        return None
    largest = max(work.attention, key=lambda one: one.flops)
    share = sum(one.flops for one in work.attention) / forward
    evidence = {"share": round(share, 4), "bound": MAX_SHARE, "modules": sum(one.modules for one in work.attention)}
    position = classify(Interval.exact(share), MAX_SHARE)
    if position == "below":
        return None
    if position == "near":
        missing = f"inconclusive: {format_percent(share)} of the forward's FLOPs are unfused attention, near the bound"
        return abstain("attention", missing, "a run with the intended sequence lengths", evidence)
    more = f" and {count(largest.modules - 1, 'more module')}" if largest.modules > 1 else ""
    return Finding(
        "attention",
        "warning",
        f"{format_percent(share)} of the forward's FLOPs are attention that stores all its scores: "
        f"{_describe(largest)} in {largest.first or 'the model itself'}{more}",
        _advise(largest),
        largest.first or None,
        evidence={**evidence, "by_sdpa": largest.by_sdpa, "steps": run.summary.steps},
    )


def _describe(attention: UnfusedAttention) -> str:
    return "the math kernel of scaled_dot_product_attention" if attention.by_sdpa else "a softmax between two products"


def _advise(attention: UnfusedAttention) -> str:
    if attention.by_sdpa:
        return (
            "call it under torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION): the error gives the reason why "
            "the fused kernel is not used (mostly float32 without autocast, a mask that needs a gradient, or the head "
            "size)"
        )
    return (
        "use torch.nn.functional.scaled_dot_product_attention instead (FlashAttention in bfloat16 or float16; in "
        "transformers attn_implementation='sdpa'), unless the attention weights themselves are needed"
    )


def _experiment(finding: Finding) -> Experiment:
    return Experiment("attention", value="sdpa", target=finding.name)


RULE = Rule(
    "attention",
    judge,
    order=90,
    needs_device=True,
    experiment=_experiment,
)
