"""Rule ``debug-mode``: a debugging switch is on that slows every step, so the other figures mean little."""

from __future__ import annotations

from typing import Final

from ..._units import format_percent
from ...summary import Finding, Summary
from .._evidence import Evidence
from .._experiment import Experiment
from .._rule import Defect, Rule

MIN_SHARE: Final = 0.5
"""Share of the recorded steps in which a switch was on: a profiler that runs for some steps is meant to."""


def judge(run: Evidence) -> Finding | None:
    """Name the switches that are on in most steps."""
    dynamic = {name: share for name, share in run.facts.debug.items() if share >= MIN_SHARE}
    switches = [*run.facts.environment.debug, *dynamic]
    if not switches:
        return None
    shares = [f"{name} (on in {format_percent(share)} of the steps)" for name, share in dynamic.items()]
    return Finding(
        "debug-mode",
        "critical",
        f"switched on for debugging: {', '.join([*run.facts.environment.debug, *shares])}. Steps take longer for this "
        "reason, often twice as long, and the other figures of this report include it",
        "switch it off for real trainings, and measure again",
        switches[0] if len(switches) == 1 else None,
        evidence={"switches": switches},
    )


def _experiment(finding: Finding) -> Experiment:
    return Experiment("debug.switch", value=False, target=", ".join(map(str, finding.evidence["switches"])))


def train_with_anomaly_detection(broken: bool) -> Summary:
    """Detect anomalies in each backward, which doubles the time; the healthy twin does not."""
    import torch

    from ...demo.defects import four_layers, train
    from ...testing import FakeClock

    clock = FakeClock()
    before = torch.is_anomaly_enabled()
    torch.autograd.set_detect_anomaly(broken, check_nan=False)
    try:
        return train(four_layers(clock, forward_ms=120 if broken else 60), clock)
    finally:
        torch.autograd.set_detect_anomaly(before)


RULE = Rule(
    "debug-mode",
    judge,
    order=138,
    defects=(Defect("anomaly detection left on", train_with_anomaly_detection),),
    comes_first=True,
    experiment=_experiment,
)
