"""Rule ``unused-gradients``: backward computes gradients of parameters that no optimizer updates.

Finds, above a bound:

- modules whose parameters get gradients and never change, as a pretrained backbone below a head that is trained: 10 %
  of the step in their backward.
"""

from __future__ import annotations

from ..._core.names import enumerate_names
from ..._core.units import format_ms
from ...frame import Phase
from ...summary import Finding
from .. import Evidence, ExceededBound, Experiment, Rule, threshold_rows


def judge(run: Evidence) -> Finding | None:
    """Judge the backward of modules whose parameters were not updated."""
    within = tuple(f"{fqn}." for fqn in run.facts.untrained)
    rows = [row for row in run.rows.get(Phase.BACKWARD, []) if row.fqn is not None and f"{row.fqn}.".startswith(within)]
    found = threshold_rows("unused-gradients", run, rows) if rows else None
    if not isinstance(found, ExceededBound):
        return found
    names = enumerate_names(run.facts.untrained)
    return found.finding(
        f"the backward of {names} takes {found}, for gradients of parameters that no optimizer updates: at least "
        f"half of it, {format_ms(found.mean_ns / 2)}, computes them",
        f"{run.facts.untrained[0]}.requires_grad_(False), before the optimizer is made; and call it under "
        "torch.no_grad() where no trained layer comes before it. To train them, give them to an optimizer",
        name=run.facts.untrained[0],
        gain_ns=found.mean_ns / 2,
        evidence={"modules": list(run.facts.untrained[:8])},
    )


RULE = Rule(
    "unused-gradients",
    judge,
    order=45,
    experiment=lambda finding: Experiment("module.code", "edit", target=finding.name),
)
