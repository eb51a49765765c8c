"""Rule ``excluded``: validation, checkpoint saving or pauses, which belong to no step, take much of the wall time.

Finds, above a bound:

- validation, rollouts, ``torch.save`` and pauses, which belong to no step, and the lines that ran then: 15 % of the
  wall time, by what happened after two steps or more. Rollouts, and stages that the program names, are a note.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from ...base.summary import ROLLOUT, VALIDATION, Finding, Severity
from ...base.units import format_count, format_ns, format_percent
from .. import Evidence, Experiment, Rule, abstain
from .._bounds import LARGE_SHARE, MAX_BESIDE
from .._stacks import EXCLUDED
from .._thresholding import is_above

_OF_THE_WORK: Final = (
    "the program names it as a part of its work: make it shorter by torch.inference_mode(), by larger batches, or in "
    "other processes while the model trains"
)
_SAVE_LESS: Final = (
    "save less often (each N minutes), keep only the last files, and write on another thread or with "
    "torch.distributed.checkpoint.async_save"
)
_ADVICE: Final = {
    "torch.save": _SAVE_LESS,
    "checkpoint saving": _SAVE_LESS,  # the name that the callbacks of frameworks give to it
    VALIDATION: "validate less often, on fewer batches, with a larger batch size and under torch.inference_mode()",
    ROLLOUT: "if this is validation, validate less often or on fewer batches; a rollout (reinforcement learning, "
    "generated samples) is part of the work: make it shorter by more environments or samples in each forward, "
    "torch.inference_mode() and torch.compile, or collect in other processes while the model trains",
}


def judge(run: Evidence) -> Finding | None:
    """Judge the excluded time as a share of the time of all steps and of itself; name its largest part."""
    summary = run.summary
    share, wall_ns, steps = summary.stages_share, summary.wall_ns, summary.all_steps
    if not is_above(share, MAX_BESIDE):
        return None
    evidence = {
        "share": round(share, 4),
        "bound": MAX_BESIDE,
        "steps": steps,
        "excluded_ns": {one.name: one.total_ns for one in summary.stages},
        "calls": {one.name: one.calls for one in summary.stages},
        "times": {one.name: one.steps for one in summary.stages},
    }
    # Time after one step only may be the end of the run: nothing shows how often it recurs. Time before the first step,
    # as Lightning's sanity check, does not recur.
    recurring = [one for one in summary.stages if one.steps > 1]
    for chosen in (False, True):
        group = [one for one in recurring if one.chosen is chosen]
        if is_above(sum(one.total_ns for one in group) / wall_ns, MAX_BESIDE):
            recurring = group
            break
    recurring_share = sum(one.total_ns for one in recurring) / wall_ns
    if not is_above(recurring_share, MAX_BESIDE):
        once = max((one for one in summary.stages if one not in recurring), key=attrgetter("total_ns"))
        missing = (
            f"inconclusive: {once.kind} took {format_percent(once.total_ns / wall_ns)} of the wall time, "
            f"{'once' if once.steps else 'before the first step'}: a longer run shows how often it recurs"
        )
        return abstain("excluded", missing, "a longer run", evidence)
    largest = max(recurring, key=attrgetter("total_ns"))
    kind, every, is_work = largest.kind, steps / largest.steps, largest.kind == ROLLOUT or largest.chosen
    often = "in each step" if every < 1.5 else f"about every {format_count(round(every))} steps"
    rest = [one for one in summary.stages if one is not largest and one.total_ns >= 0.01 * wall_ns]
    others = "".join(f", {one.kind} {format_percent(one.total_ns / wall_ns)}" for one in rest)
    severity: Severity = "note" if is_work else "critical" if recurring_share >= LARGE_SHARE else "warning"
    table = run.facts.stacks.get(EXCLUDED)
    lines = ""
    if table is not None and table.named:
        lines = f"; {table.describe(share)} of the wall time{table.described_waits}"
    return Finding(
        "excluded",
        severity,
        f"{kind} takes {format_percent(largest.total_ns / wall_ns)} of the wall time: {largest.calls} times, {often}, "
        f"{format_ns(largest.total_ns // largest.calls)} each{others}{lines}",
        _ADVICE.get(kind, _OF_THE_WORK if is_work else "do this less often, or beside the training"),
        kind,
        gain_ns=None if severity == "note" else round(recurring_share * wall_ns / max(steps, 1)),
        evidence=evidence | ({} if table is None else table.evidence()),
    )


def _experiment(finding: Finding) -> Experiment:
    """Return the call to make less often; fewer rollouts would be another training, so there the advice is text."""
    if finding.severity == "note":
        return Experiment("other", "edit", target=finding.name, quantity="wall_ns")
    return Experiment("call.every", "increase", target=finding.name, quantity="wall_ns")


RULE = Rule("excluded", judge, order=134, experiment=_experiment)
