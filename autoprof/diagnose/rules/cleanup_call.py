"""Rule ``cleanup-call``: memory is freed by hand inside the step, by ``gc.collect`` or torch's ``empty_cache``."""

from __future__ import annotations

from typing import Final

from ...summary import Finding
from .._evidence import Evidence
from .._experiment import less_often
from .._rule import Rule
from .._thresholding import ExceededBound, abstain, threshold_time

MAX_SHARE: Final = 0.05
"""Python and torch free memory without such calls, so all of this time can be gained."""


def judge(run: Evidence) -> Finding | None:
    """Judge the calls that free memory."""
    calls = run.facts.cleanups
    if calls is None:
        return abstain("cleanup-call", "the calls that free memory", "let the run continue")
    if not calls.sites:
        return None
    found = threshold_time("cleanup-call", run, calls.interval, calls.mean_cost_ns, MAX_SHARE)
    if not isinstance(found, ExceededBound):
        return found
    return found.finding(
        f"freeing memory by hand takes {found}: {calls.describe_sites()}",
        "leave it out: Python frees tensors when nothing refers to them, and torch reuses its cache; after "
        "empty_cache the next steps allocate anew. Call them between epochs, if at all",
        name=calls.dominant_location,
        evidence={"sites": calls.sites_evidence()},
    )


RULE = Rule(
    "cleanup-call",
    judge,
    order=131,
    host_times=False,  # the calls are made on any machine
    experiment=less_often,
)
