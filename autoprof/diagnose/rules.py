"""All rules in a row: evidence → findings, those with the most time to be won first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ..summary import Finding, Summary
from .compute_rules import attention, convolution, precision
from .evidence import Evidence
from .memory_rules import fragmentation, memory_growth, memory_pressure
from .model_rules import backward_ratio, hot_module, launch_bound
from .recompute import recompute
from .run_rules import jitter, overhead
from .signal_rules import logging, recompile, straggler, sync_call
from .thresholding import abstain
from .thresholds import MIN_STEPS
from .time_rules import comm_exposed, data_wait, h2d_copy, optimizer
from .what_if import what_if

Rule = Callable[[Evidence], Finding | None]

RULES: Final[dict[str, Rule]] = {
    "data-wait": data_wait,
    "h2d-copy": h2d_copy,
    "recompute": recompute,
    "backward-ratio": backward_ratio,
    "hot-module": hot_module,
    "optimizer": optimizer,
    "launch-bound": launch_bound,
    "precision": precision,
    "attention": attention,
    "convolution": convolution,
    "comm-exposed": comm_exposed,
    "sync-call": sync_call,
    "logging": logging,
    "jitter": jitter,
    "memory-growth": memory_growth,
    "memory-pressure": memory_pressure,
    "fragmentation": fragmentation,
    "recompile": recompile,
    "straggler": straggler,
    "overhead": overhead,
}
"""Every rule by its name, in the order in which abstentions are listed."""

_GRAVITY: Final = {"critical": 0, "warning": 1, "info": 2}
_ORDER: Final = {rule: at for at, rule in enumerate(RULES)}


def judge(seen: Evidence) -> tuple[Finding, ...]:
    """Return what the rules found, then what they could not judge; nothing for a run without a recorded step."""
    steps = seen.summary.steps
    if not steps:
        return ()
    if steps < MIN_STEPS:
        missing = f"recorded steps: {MIN_STEPS} needed, {steps} so far"
        return tuple(abstain(rule, missing, "let the run go on") for rule in RULES)
    found = (rule(seen) for rule in RULES.values())
    return tuple(sorted((finding for finding in found if finding is not None), key=_rank))


def _rank(finding: Finding) -> tuple[bool, int, int, int]:
    gravity = _GRAVITY[finding.severity]
    return finding.severity == "info", -(finding.gain_ns or 0), gravity, _ORDER[finding.rule]


def diagnose(seen: Evidence) -> Summary:
    """Return the summary with its findings and its what-if table."""
    return replace(seen.summary, findings=judge(seen), what_if=what_if(seen))
