"""Rule ``convolution``: convolutions with constant shapes, while cuDNN must not search for the fastest algorithm."""

from __future__ import annotations

from typing import Final

from ..._stats.intervals import Interval
from ..._units import format_percent
from ...summary import Finding
from .._evidence import Evidence
from .._experiment import Experiment
from .._rule import Rule
from .._thresholding import abstain, classify
from .._work import counted_work

MIN_SHARE: Final = 0.3
"""FLOPs of convolutions over all counted FLOPs: below this a faster algorithm has little effect."""


def judge(run: Evidence) -> Finding | None:
    """Judge the share of convolutions in the FLOPs, if their shapes are constant and ``cudnn.benchmark`` is off."""
    work = counted_work("convolution", run)
    if isinstance(work, Finding):
        return work
    if work.benchmark is None:
        remedy = "nothing to do without cuDNN, or when it must be deterministic"
        return abstain("convolution", "cuDNN with a free choice of algorithm", remedy)
    if work.benchmark:
        return None
    total = sum(kind.flops for kind in work.kinds)
    share = sum(kind.flops for kind in work.kinds if kind.family == "conv") / max(total, 1)
    evidence = {"share": round(share, 4), "bound": MIN_SHARE, "sequences": work.sequences}
    position = classify(Interval.exact(share), MIN_SHARE)
    if position == "below" or work.sequences > 1:  # cuDNN would search again for every new shape
        return None
    if position == "near":
        missing = f"inconclusive: {format_percent(share)} of the FLOPs are convolutions, near the bound"
        return abstain("convolution", missing, "try torch.backends.cudnn.benchmark = True", evidence)
    return Finding(
        "convolution",
        "warning",
        f"{format_percent(share)} of the counted FLOPs are convolutions and all steps have the same shapes, but "
        "torch.backends.cudnn.benchmark is off, so cuDNN does not search for the fastest algorithm",
        "set torch.backends.cudnn.benchmark = True before the first step: the first steps take longer, and results may "
        "differ in the last bits from run to run; the possible gain was not measured, autoprof compare shows it",
        evidence={**evidence, "steps": run.summary.steps},
    )


RULE = Rule(
    "convolution",
    judge,
    order=100,
    needs_device=True,
    experiment=Experiment("cudnn.benchmark", value=True),
)
