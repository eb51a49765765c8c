"""The counted FLOPs of a step, for rules on how the work is done."""

from __future__ import annotations

from ..summary import Finding, Work
from ._evidence import Evidence
from ._thresholding import abstain


def counted_work(rule: str, run: Evidence) -> Work | Finding:
    """Return the counted work of a step, or an abstention with the reason why there is none."""
    work = run.summary.work
    if work is not None and work.reason is None:
        return work
    reason = "" if work is None else f": {work.reason}"
    missing = f"the FLOPs of a step{reason}"
    return abstain(rule, missing, "set flops: auto")
