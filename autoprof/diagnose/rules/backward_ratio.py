"""Rule ``backward-ratio``: backward takes much longer than twice the forward."""

from __future__ import annotations

from typing import Final

from ..._core.units import format_ms
from ...frame import Phase
from ...summary import Finding, Row
from .. import Evidence, Rule, abstain, classify, edit_module

USUAL_RATIO: Final = 2.0
"""Backward over forward in theory: two products for one, for the gradients of the input and of the weights (Kaplan
et al. 2020, arXiv:2001.08361, section 2.1)."""
MAX_RATIO: Final = 3.0
"""Half as much again as in theory is more than memory traffic explains."""
MIN_SHARE: Final = 0.2
"""Where backward takes less of the step than this, its ratio does not matter."""


def judge(run: Evidence) -> Finding | None:
    """Judge the ratio over the modules that have both forward and backward spans."""
    forward, backward = (run.rows.get(phase, []) for phase in (Phase.FORWARD, Phase.BACKWARD))
    names = {row.name for row in forward} & {row.name for row in backward}
    if not names:
        return abstain("backward-ratio", "modules with both forward and backward spans", "name modules as targets")
    forward = [row for row in forward if row.name in names]
    backward = [row for row in backward if row.name in names]
    backward_time, forward_time = run.self_time(backward), run.self_time(forward)
    ratio = backward_time.over(forward_time)
    if classify(backward_time.over(run.step_time), MIN_SHARE) == "below":
        return None
    position = classify(ratio, MAX_RATIO)
    low, middle, high = (round(part, 2) for part in ratio)
    evidence = {"ratio": middle, "ratio_low": low, "ratio_high": high, "ratio_bound": MAX_RATIO}
    if position == "below":
        return None
    if position == "near":
        missing = f"inconclusive: backward is {ratio.low:.1f} to {ratio.high:.1f} x forward, near {MAX_RATIO:.0f} x"
        return abstain("backward-ratio", missing, "a longer run narrows the interval", evidence)
    steps = run.summary.steps
    excess = {name: _self_ns(backward, name) - USUAL_RATIO * _self_ns(forward, name) for name in names}
    worst = max(excess, key=lambda name: (excess[name], name))
    times = _self_ns(backward, worst) / max(_self_ns(forward, worst), 1)
    return Finding(
        "backward-ratio",
        "warning",
        f"backward takes {ratio.middle:.1f} x as long as forward; {USUAL_RATIO:.0f} x is usual. The largest excess is "
        f"in {worst}: {times:.1f} x, {format_ms(excess[worst] / steps)} a step above the usual",
        "look for indexing, scatter or a custom autograd function in that module: their backward accumulates where "
        "forward only reads",
        worst,
        Phase.BACKWARD,
        gain_ns=max(round(backward_time.middle - USUAL_RATIO * forward_time.middle), 0),
        evidence={**evidence, "steps": steps},
    )


def _self_ns(rows: list[Row], name: str) -> int:
    return sum(row.self_ns for row in rows if row.name == name)


RULE = Rule("backward-ratio", judge, order=40, experiment=edit_module)
