"""Rule ``attention``: attention that stores all its scores, unfused or by the math kernel of SDPA.

Finds, above a bound:

- attention that stores all its scores: product, softmax, product, or the math kernel of SDPA: 10 % of the forward's
  FLOPs.
"""

from __future__ import annotations

from typing import Final

from ...base.summary import Finding
from ...base.units import count, format_percent
from .. import Evidence, Experiment, Rule, abstain
from .._bounds import MIN_SHARE
from .._thresholding import counted_work, is_above


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
    if not is_above(share, MIN_SHARE):
        return None
    described, advice = _BY_SDPA if largest.by_sdpa else _WRITTEN_OUT
    more = f" and {count(largest.modules - 1, 'more module')}" if largest.modules > 1 else ""
    return Finding(
        "attention",
        "warning",
        f"{format_percent(share)} of the forward's FLOPs are attention that stores all its scores: "
        f"{described} in {largest.first or 'the model itself'}{more}",
        advice,
        largest.first or None,
        evidence={
            "share": round(share, 4),
            "bound": MIN_SHARE,
            "modules": sum(one.modules for one in work.attention),
            "by_sdpa": largest.by_sdpa,
            "steps": run.summary.steps,
        },
    )


_BY_SDPA: Final = (
    "the math kernel of scaled_dot_product_attention",
    "call it under torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION): the error gives the reason why the "
    "fused kernel is not used (mostly float32 without autocast, a mask that needs a gradient, or the head size)",
)
_WRITTEN_OUT: Final = (
    "a softmax between two products",
    "use torch.nn.functional.scaled_dot_product_attention instead (FlashAttention in bfloat16 or float16; in "
    "transformers attn_implementation='sdpa'), unless the attention weights themselves are needed",
)


RULE = Rule(
    "attention",
    judge,
    order=90,
    needs_device=True,
    experiment=lambda finding: Experiment("attention", value="sdpa", target=finding.name),
)
