"""Rule ``unused-gradients``: backward computes gradients of parameters that no optimizer updates.

Finds, above a bound:

- modules and losses whose parameters get gradients and never change, as a pretrained backbone below a head that is
  trained, or the network of a perceptual loss: 10 % of the step in their backward.
"""

from __future__ import annotations

from ...base.frame import Phase
from ...base.names import enumerate_names
from ...base.summary import Finding
from ...base.units import format_ms
from ...probes.losses import LOSS
from .. import Evidence, ExceededBound, Rule, edit_module, threshold_rows
from .._evidence import is_within


def judge(run: Evidence) -> Finding | None:
    """Judge the backward of modules whose parameters were not updated."""
    untrained = run.facts.untrained
    rows = [
        row
        for row in run.rows.get(Phase.BACKWARD, [])
        if row.name in untrained or any(is_within(row, fqn) for fqn in untrained)
    ]
    found = threshold_rows("unused-gradients", run, rows) if rows else None
    if not isinstance(found, ExceededBound):
        return found
    names = enumerate_names(untrained)
    first = untrained[0].removeprefix(LOSS)
    freeze = f"model.get_submodule({first!r}).requires_grad_(False)"
    if first != untrained[0]:
        freeze = f"requires_grad_(False) of the {first}"
    return found.finding(
        f"the backward of {names} takes {found}, for gradients of parameters that no optimizer updates: at least "
        f"half of it, {format_ms(found.mean_ns / 2)}, computes them",
        f"{freeze}, before the optimizer is made; and call it under torch.no_grad() where no trained layer comes "
        "before it. To train it, give its parameters to an optimizer",
        name=max(rows, key=lambda row: row.total_ns).name,
        gain_ns=found.mean_ns / 2,
        evidence={"modules": list(untrained[:8])},
    )


RULE = Rule(
    "unused-gradients",
    judge,
    order=45,
    experiment=edit_module,
)
