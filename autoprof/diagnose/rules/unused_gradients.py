"""Rule ``unused-gradients``: backward computes gradients that no step of an optimizer uses.

Finds, above a bound:

- modules and losses whose parameters get gradients and never change, as a pretrained backbone below a head that is
  trained, or the network of a perceptual loss: 10 % of the step in their backward.
- modules whose gradients ``zero_grad`` clears before a step has used them, as those of a generator that the loss of its
  discriminator reaches: 10 % of the step in half of their backward. A note, since the program may have read them.
"""

from __future__ import annotations

from ...base.frame import Phase
from ...base.names import enumerate_names
from ...base.summary import Finding, Row
from ...base.units import format_ms, format_percent
from ...probes.losses import LOSS
from .. import Evidence, ExceededBound, Rule, edit_module, threshold_rows
from .._bounds import MIN_SHARE
from .._evidence import is_within
from .._stacks import CALLS
from .._thresholding import is_above


def judge(run: Evidence) -> Finding | None:
    """Judge the backward of modules whose parameters are not updated, or else of those whose gradients are cleared."""
    return _judge_untrained(run) or _judge_cleared(run)


def _judge_untrained(run: Evidence) -> Finding | None:
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


def _judge_cleared(run: Evidence) -> Finding | None:
    """Judge the backward passes whose gradients were cleared; half of each computes the gradients of parameters."""
    found, seen = [], set[str]()
    for fqn, share in sorted(run.facts.cleared.items(), key=lambda one: len(one[0])):
        rows = [row for row in _rows_of(run, fqn) if row.name not in seen]
        seen.update(row.name for row in rows)
        if rows:
            ns = share * sum(row.self_ns for row in rows) / run.summary.steps
            found.append((ns, fqn, share, max(rows, key=lambda row: row.total_ns)))
    ns = sum(one[0] for one in found)
    if not is_above(ns / 2 / max(run.summary.step_mean_ns, 1), MIN_SHARE):
        return None
    _, fqn, share, row = max(found, key=lambda one: one[:2])
    table = run.facts.stacks.get(f"{CALLS} {row.name.partition('/')[0]}")
    lines = f". Its forwards are called at {table.describe_places()}" if table is not None and table.named else ""
    return Finding(
        "unused-gradients",
        "note",
        f"{format_percent(share)} of the gradients that backward adds up in {row.name if fqn else 'the model'} are "
        f"cleared by zero_grad before a step of an optimizer uses them. Such gradients take {format_ms(ns)} of the "
        f"step, for nothing unless the program reads them itself{lines}",
        "detach what such a loss does not train (.detach() of its input, or requires_grad_(False) of the module around "
        "this pass), and run forward and backward once for each step, as in a closure",
        row.name,
        Phase.BACKWARD,
        evidence={"cleared": round(share, 3)},
    )


def _rows_of(run: Evidence, fqn: str) -> list[Row]:
    """Return the rows of the backward of a module, or of the innermost part of the model around it that has rows."""
    rows = [row for row in run.rows.get(Phase.BACKWARD, []) if row.fqn is not None]
    around = [row for row in rows if row.fqn and f"{fqn}.".startswith(f"{row.fqn}.")]
    within = [row for row in rows if is_within(row, fqn)]
    return within or sorted(around, key=lambda row: len(row.fqn or ""))[-1:]


RULE = Rule(
    "unused-gradients",
    judge,
    order=45,
    experiment=edit_module,
)
