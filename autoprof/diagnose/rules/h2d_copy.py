"""Rule ``h2d-copy``: the step waits for copies of its batch to the device.

Finds, above a bound:

- copies to the device that the step waits for: 10 %.
"""

from __future__ import annotations

from ...base.frame import Phase
from ...base.summary import Finding
from .. import Evidence, ExceededBound, Experiment, Rule, abstain, describe_longest, dominant_name, threshold_rows


def judge(run: Evidence) -> Finding | None:
    """Judge the copies that the step waits for."""
    rows = run.rows.get(Phase.H2D)
    if rows is None:
        return abstain("h2d-copy", "h2d spans", "nothing to do when the model trains on the CPU")
    found = threshold_rows("h2d-copy", run, rows)
    if not isinstance(found, ExceededBound):
        return found
    return found.finding(
        f"copies to the device take {found}{describe_longest(run, rows)}",
        "where the batch is not in pinned memory yet, pin it (pin_memory=True in the loader) and copy with "
        "non_blocking=True, the next batch while this one trains; send fewer bytes (uint8 images, normalised on the "
        "device)",
        name=dominant_name(rows),
    )


RULE = Rule("h2d-copy", judge, order=20, needs_device=True, experiment=Experiment("loader.pin_memory", value=True))
