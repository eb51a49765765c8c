"""Compare the verdict of rank 0's summary with the truth."""

from __future__ import annotations

import re
from typing import Any

from .faults import Run


def accusations(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the findings that name a rank as slow."""
    return [one for one in findings if one["rule"] == "straggler" and one["severity"] != "info"]


def judge(run: Run, result: dict[str, Any]) -> dict[str, Any]:
    """Return whether rank, module and phase are right; of a healthy run, whether no rank is accused."""
    accused = accusations(result["findings"])
    fault = run.fault
    if fault is None:
        return {"right": not accused and not result["errors"] and not result["hung"], "accused": bool(accused)}
    if result["hung"]:
        return {"right": False, "accused": False}
    if fault.kind == "dead":
        ended = re.findall(
            r"ranks? ([0-9, ]+)(?: \([^)]*\))? is late or has ended", " ".join((result["saved"] or "").split())
        )
        return {"right": ended == [str(fault.rank)], "accused": False}
    if not accused:
        return {"right": False, "accused": False}
    first = accused[0]
    rank = first["rank"] == fault.rank
    phase = fault.phase is None or first["phase"] == fault.phase
    name = fault.module is None or (first["name"] or "").split("/")[0] == fault.module
    return {"right": rank and phase and name, "accused": True, "rank": rank, "phase": phase, "name": name}


def is_sampled(run: Run, result: dict[str, Any]) -> bool:
    """Return whether the slow rank has recorded a step with the fault, or the one after it, which may have its end."""
    fault = run.fault
    if fault is None or not fault.steps or fault.kind == "dead":
        return True
    recorded = set(result["recorded"][fault.rank])
    return any(step in recorded or step + 1 in recorded for step in fault.steps)
