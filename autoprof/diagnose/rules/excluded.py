"""Rule ``excluded``: validation, checkpoint saving or pauses, which belong to no step, take much of the wall time."""

from __future__ import annotations

from typing import Final

from ..._core.units import format_count, format_ns, format_percent
from ..._stats.intervals import Interval
from ...summary import ROLLOUT, VALIDATION, Excluded, Finding
from .._evidence import Evidence
from .._experiment import Experiment
from .._rule import Rule
from .._stacks import EXCLUDED
from .._thresholding import CRITICAL_SHARE, abstain, classify

MAX_SHARE: Final = 0.15
"""One tenth for validation and a little for checkpoints is usual; above this the schedule is worth a look."""
MIN_STEPS: Final = 2
"""What happened after one step only may be the end of the run: how much of a longer run it would take is unknown, for
nothing shows how often it recurs. What happens before the first step, as Lightning's sanity check, does not recur."""
SAVING: Final = "torch.save"
CHECKPOINT: Final = "checkpoint saving"
"""The name that the callbacks of frameworks give to it."""
_SAVE_LESS: Final = (
    "save less often (each N minutes), keep only the last files, and write on another thread or with "
    "torch.distributed.checkpoint.async_save"
)
_ADVICE: Final = {
    SAVING: _SAVE_LESS,
    CHECKPOINT: _SAVE_LESS,
    VALIDATION: "validate less often, on fewer batches, with a larger batch size and under torch.inference_mode()",
    ROLLOUT: "if this is validation, validate less often or on fewer batches; a rollout (reinforcement learning, "
    "generated samples) is part of the work: make it shorter by more environments or samples in each forward, "
    "torch.inference_mode() and torch.compile, or collect in other processes while the model trains",
}


def judge(run: Evidence) -> Finding | None:
    """Judge the excluded time as a share of the time of all steps and of itself; name its largest part."""
    summary = run.summary
    share, wall_ns, steps = summary.excluded_share, summary.wall_ns, summary.all_steps
    evidence = {
        "share": round(share, 4),
        "bound": MAX_SHARE,
        "steps": steps,
        "excluded_ns": {one.name: one.total_ns for one in summary.excluded},
        "calls": {one.name: one.calls for one in summary.excluded},
        "times": {one.name: one.times for one in summary.excluded},
    }
    position = classify(Interval.exact(share), MAX_SHARE)
    if position == "below":
        return None
    if position == "near":
        missing = f"inconclusive: {format_percent(share)} of the wall time is excluded from steps, near the bound"
        return abstain("excluded", missing, "a longer run", evidence)
    recurring = [one for one in summary.excluded if one.times >= MIN_STEPS]
    recurring_share = sum(one.total_ns for one in recurring) / wall_ns
    if classify(Interval.exact(recurring_share), MAX_SHARE) != "above":
        once = max((one for one in summary.excluded if one not in recurring), key=_length)
        missing = (
            f"inconclusive: {once.kind} took {format_percent(once.total_ns / wall_ns)} of the wall time, "
            f"{'once' if once.times else 'before the first step'}: a longer run shows how often it recurs"
        )
        return abstain("excluded", missing, "a longer run", evidence)
    largest = max(recurring, key=_length)
    kind = largest.kind
    critical = recurring_share >= CRITICAL_SHARE and kind != ROLLOUT
    table = run.facts.stacks.get(EXCLUDED)
    lines = f"; {table.describe(share)} of the wall time" if table is not None and table.named else ""
    return Finding(
        "excluded",
        "critical" if critical else "warning",
        f"{_describe(kind, largest, steps, largest.total_ns / wall_ns)}{_others(run, largest, wall_ns)}{lines}",
        _ADVICE.get(kind, "do this less often, or beside the training"),
        kind,
        gain_ns=round((recurring_share - MAX_SHARE) * wall_ns / max(steps, 1)),
        evidence=evidence | ({} if table is None else table.evidence()),
    )


def _length(one: Excluded) -> int:
    return one.total_ns


def _describe(kind: str, one: Excluded, steps: int, share: float) -> str:
    every = steps / one.times
    often = "in each step" if every < 1.5 else f"about every {format_count(round(every))} steps"
    return (
        f"{kind} takes {format_percent(share)} of the wall time: {one.calls} times, {often}, "
        f"{format_ns(one.total_ns // one.calls)} each"
    )


def _others(run: Evidence, largest: Excluded, wall_ns: float) -> str:
    rest = [one for one in run.summary.excluded if one is not largest and one.total_ns >= 0.01 * wall_ns]
    return "".join(f", {one.kind} {format_percent(one.total_ns / wall_ns)}" for one in rest)


def _experiment(finding: Finding) -> Experiment:
    """Return the call to make less often; fewer rollouts would be another training, so there the advice is text."""
    if finding.name == ROLLOUT:
        return Experiment("other", "edit", target=finding.name, quantity="wall_ns")
    return Experiment("call.every", "increase", target=finding.name, quantity="wall_ns")


RULE = Rule(
    "excluded",
    judge,
    order=134,
    experiment=_experiment,
)
