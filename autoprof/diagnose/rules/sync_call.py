"""Rule ``sync-call``: calls wait for the device, and then the device waits for the host.

Finds, above a bound:

- calls that wait for the device (``.item()``, ``float(t)``, printing a tensor, ...), by line; their cost is the idle
  time of the device afterwards: 10 %.
"""

from __future__ import annotations

from ...base.summary import Finding
from ...base.units import format_ms, format_percent
from .. import Evidence, ExceededBound, Rule, abstain, less_often, threshold_time


def judge(run: Evidence) -> Finding | None:
    """Judge the time that the device is idle after calls that wait for it."""
    waits = run.facts.waits
    if run.summary.clock != "device" or waits is None:
        return abstain("sync-call", "a device's clock", "nothing to do when the model trains on the CPU")
    if not waits.sites:
        return None
    found = threshold_time("sync-call", run, waits.interval, waits.mean_cost_ns)
    if not isinstance(found, ExceededBound):
        return found
    return found.finding(
        f"the host waits for the device for {format_ms(waits.mean_ns)} of each step to read values: "
        f"{waits.describe_sites()}. After each wait the device is idle until the next launch, at most "
        f"{format_ms(found.mean_ns)} a step ({format_percent(found.mean_share)})",
        "keep values on the device (loss.detach(), running sums) and read them only every few steps; use torch.where "
        "instead of if; print and log the values that were read then",
        name=waits.dominant_location,
        evidence={"wait_ns": waits.mean_ns, "sites": waits.sites_evidence()},
    )


RULE = Rule("sync-call", judge, order=120, needs_device=True, experiment=less_often)
