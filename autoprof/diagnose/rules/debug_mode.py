"""Rule ``debug-mode``: a debugging switch is on that slows every step, so the other figures mean little.

Finds, above a bound:

- anomaly detection, a profiler, a debugger, ``CUDA_LAUNCH_BLOCKING``, ``TORCH_DISTRIBUTED_DEBUG=DETAIL``,
  ``PYTHONDEVMODE``, ...: half of the steps.
"""

from __future__ import annotations

from ...base.summary import Finding
from ...base.units import format_percent
from .. import Evidence, Experiment, Rule
from .._bounds import MOST


def judge(run: Evidence) -> Finding | None:
    """Name the switches that are on in most steps."""
    # Share of the recorded steps in which a switch was on: a profiler that runs for some steps is meant to.
    dynamic = {name: share for name, share in run.facts.debug.items() if share >= MOST}
    switches = [*run.facts.environment.debug, *dynamic]
    if not switches:
        return None
    shares = [f"{name} (on in {format_percent(share)} of the steps)" for name, share in dynamic.items()]
    return Finding(
        "debug-mode",
        "critical",
        f"switched on for debugging: {', '.join([*run.facts.environment.debug, *shares])}. Steps take longer for this "
        "reason, and the other figures of this report include it",
        "switch it off for real trainings, and measure again",
        switches[0] if len(switches) == 1 else None,
        evidence={"switches": switches},
    )


def _experiment(finding: Finding) -> Experiment:
    return Experiment("debug.switch", value=False, target=", ".join(map(str, finding.evidence["switches"])))


RULE = Rule("debug-mode", judge, order=138, comes_first=True, experiment=_experiment)
