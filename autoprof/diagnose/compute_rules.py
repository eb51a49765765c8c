"""Rules on how the model's work is done: in how many bits, by which attention, by which convolution."""

from __future__ import annotations

from .._units import format_ms, format_percent
from ..summary import Finding, UnfusedAttention, Work
from .evidence import Evidence, Interval
from .thresholding import Weighed, abstain, stand, weigh
from .thresholds import ATTENTION_SHARE, CONVOLUTION_SHARE, PRECISION_SHARE

_FLOAT32 = "float32"


def precision(seen: Evidence) -> Finding | None:
    """Work in 32 bits on a device that does 16 several times as fast, where the arithmetic is what takes the time."""
    work = _counted("precision", seen)
    if isinstance(work, Finding):
        return work
    if work.peak is None or work.mfu is None:
        missing = f"the device's peak: {work.no_peak}" if work.no_peak else "the device's peak"
        return abstain("precision", missing, "nothing to do where the model trains on the CPU")
    wide = [kind for kind in work.kinds if kind.dtype == _FLOAT32]
    peak_ns = sum(kind.peak_ns or 0.0 for kind in wide)
    half_ns = sum(kind.half_ns or 0.0 for kind in wide)
    weighed = weigh("precision", seen, Interval(peak_ns, peak_ns, peak_ns), peak_ns, PRECISION_SHARE)
    if not isinstance(weighed, Weighed):
        return weighed
    return weighed.finding(
        f"products in float32 take at least {format_ms(peak_ns)} ({format_percent(weighed.mean_share)} of the step) "
        f"even at the peak of this device, {work.peak}; in 16 bits it could do them in {format_ms(half_ns)}",
        "torch.autocast around the forward and the loss, in bfloat16 where the device has it (with float16 also a "
        "GradScaler); or at least torch.set_float32_matmul_precision('high'), where TF32 is off",
        gain_ns=peak_ns - half_ns,
        evidence={"half_ns": round(half_ns), "flops": sum(kind.flops for kind in wide), "peak": work.peak},
    )


def attention(seen: Evidence) -> Finding | None:
    """Attention that keeps all its scores in memory: written out, or by SDPA's kernel of last resort."""
    if seen.summary.clock != "device":
        return abstain("attention", "a device's clock", "on the CPU either form may be the faster: measure both")
    work = _counted("attention", seen)
    if isinstance(work, Finding):
        return work
    forward = work.flops.get("forward", 0)
    if not work.attention or not forward:
        return None
    worst = max(work.attention, key=lambda one: one.flops)
    share = sum(one.flops for one in work.attention) / forward
    facts = {"share": round(share, 4), "bound": ATTENTION_SHARE, "modules": sum(one.modules for one in work.attention)}
    standing = stand(Interval(share, share, share), ATTENTION_SHARE)
    if standing == "below":
        return None
    if standing == "near":
        missing = (
            f"inconclusive: {format_percent(share)} of the forward's work is attention written out, near the bound"
        )
        return abstain("attention", missing, "a run with the lengths that are wanted", facts)
    more = f" and {worst.modules - 1} modules more" if worst.modules > 1 else ""
    return Finding(
        "attention",
        "warning",
        f"{format_percent(share)} of the forward's work are attention's products with all scores kept in memory: "
        f"{_how(worst)} in {worst.first or 'the model itself'}{more}",
        _instead(worst),
        worst.first or None,
        evidence={**facts, "by_sdpa": worst.by_sdpa, "steps": seen.summary.steps},
    )


def _how(one: UnfusedAttention) -> str:
    return "scaled_dot_product_attention's math kernel" if one.by_sdpa else "a softmax between two products"


def _instead(one: UnfusedAttention) -> str:
    if one.by_sdpa:
        return (
            "torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION) around it says what keeps the fused kernel "
            "away: mostly float32 (autocast), a mask that needs a gradient, or the head's size"
        )
    return (
        "torch.nn.functional.scaled_dot_product_attention in its place (FlashAttention in bfloat16 or float16; in "
        "transformers attn_implementation='sdpa'), unless the weights themselves are needed"
    )


def convolution(seen: Evidence) -> Finding | None:
    """Convolutions of ever the same shapes, for which cuDNN takes the first algorithm that its heuristic names."""
    work = _counted("convolution", seen)
    if isinstance(work, Finding):
        return work
    if work.benchmark is None:
        remedy = "nothing to do without cuDNN, or where it is told to be deterministic"
        return abstain("convolution", "cuDNN, free to choose its algorithm", remedy)
    if work.benchmark:
        return None
    whole = sum(kind.flops for kind in work.kinds)
    share = sum(kind.flops for kind in work.kinds if kind.family == "conv") / max(whole, 1)
    facts = {"share": round(share, 4), "bound": CONVOLUTION_SHARE, "sequences": work.sequences}
    standing = stand(Interval(share, share, share), CONVOLUTION_SHARE)
    if standing == "below" or work.sequences > 1:  # it would search anew for every shape
        return None
    if standing == "near":
        missing = f"inconclusive: {format_percent(share)} of the work are convolutions, near the bound"
        return abstain("convolution", missing, "try torch.backends.cudnn.benchmark = True", facts)
    return Finding(
        "convolution",
        "warning",
        f"{format_percent(share)} of the counted work are convolutions, all steps have the same shapes, and cuDNN may "
        "not try its algorithms out on them",
        "torch.backends.cudnn.benchmark = True before the first step: the first steps get longer, results may differ "
        "in the last bits from run to run; what it wins was not measured: autoprof compare tells",
        evidence={**facts, "steps": seen.summary.steps},
    )


def _counted(rule: str, seen: Evidence) -> Work | Finding:
    """Return the counted work, or an abstention that says why there is none."""
    work = seen.summary.work
    if work is not None and work.reason is None:
        return work
    why = "" if work is None else f": {work.reason}"
    return abstain(rule, f"the work of a step{why}", "flops: auto, or flops: trust where the model's code is known")
