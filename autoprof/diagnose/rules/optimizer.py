"""Rule ``optimizer``: the optimizer's step is long, or its state takes too much of a full memory."""

from __future__ import annotations

from typing import Final

from ..._core.units import format_bytes, format_percent
from ...frame import Phase
from ...summary import Finding
from .. import Evidence, ExceededBound, Experiment, Rule, abstain, dominant_name, threshold_rows
from .._optimizers import advise_faster, advise_smaller
from .._thresholding import is_above

MAX_SHARE: Final = 0.15
"""A step of Adam reads and writes a few tensors of the parameters' size once; forward and backward use each parameter
for every sample. If these do not take far longer, the optimizer is slow or the batch is small."""

_RARELY: Final = (
    "look at the work that the optimizer does only in these steps, such as a preconditioner or a synchronisation: do "
    "it less often, or for fewer parameters"
)


def judge(run: Evidence) -> Finding | None:
    """Judge the time of the optimizer's step, then the memory of its state."""
    rows = run.rows.get(Phase.OPTIMIZER)
    if rows is None:
        remedy = 'use a torch optimizer, or put the update inside autoprof.span("update") to see its time'
        return _judge_state(run) or abstain("optimizer", "optimizer spans", remedy)
    schedule = [row for row in rows if row.name.endswith("/scheduler.step")]
    slow = threshold_rows("optimizer", run, schedule, MAX_SHARE) if schedule else None
    if isinstance(slow, ExceededBound):
        return slow.finding(
            f"the schedule of the learning rate takes {slow}",
            "make its functions cheaper, such as a table computed once; or call scheduler.step() less often",
            name=dominant_name(schedule),
        )
    rows = [row for row in rows if row not in schedule]
    found = threshold_rows("optimizer", run, rows, MAX_SHARE) if rows else None
    if not isinstance(found, ExceededBound):
        return _judge_state(run) or found
    optimizers = run.facts.optimizers or ()
    state = sum(one.state_bytes for one in optimizers)
    share = _state_share(run)
    of_peak = f", {format_percent(share)} of the peak" if share else ""
    # Less state than this is not worth a word.
    described_state = f"; its state takes {format_bytes(state)}{of_peak}" if state >= 64 * 2**20 else ""
    smaller = advise_smaller(optimizers)
    less_memory = f". For less memory: {smaller}" if smaller and share else ""
    return found.finding(
        f"the optimizer takes {found}{described_state}",
        (advise_faster(optimizers) if found.rare is None else _RARELY) + less_memory,
        name=dominant_name(rows),
        # Some optimizer time remains in any case, and nothing measures how much: the gain is the part above the bound.
        gain_ns=found.mean_ns - MAX_SHARE * run.summary.step_mean_ns
        if found.rare is None
        else found.rare.share.middle * run.summary.step_mean_ns,
        evidence={"state_bytes": state, "kinds": [one.kind for one in optimizers]} if optimizers else {},
    )


def _state_share(run: Evidence) -> float:
    """Return the share of the device's peak of state that is there; 0 where it is unknown."""
    peak, device = run.summary.memory.get("peak_bytes"), run.facts.environment.device
    state = [one.state_bytes for one in run.facts.optimizers or () if not device or one.device in ("", device)]
    return sum(state) / peak if peak else 0.0


def _judge_state(run: Evidence) -> Finding | None:
    """Judge the state's memory: only on a device that is well filled does it prevent a larger batch."""
    # State over the peak. Adam's state is twice the parameters, half of the memory of a model without activations; from
    # about a third on, its 8-bit version frees a fifth of the peak.
    max_state_share = 0.3
    # Peak over capacity: below this there is free memory already.
    min_filled = 0.6
    optimizers, peak = run.facts.optimizers or (), run.summary.memory.get("peak_bytes")
    capacity, share = run.facts.memory_capacity_bytes, _state_share(run)
    if not share or peak is None or not capacity:
        return None
    filled = peak / capacity
    if not is_above(share, max_state_share) or not is_above(filled, min_filled):
        return None
    state = sum(one.state_bytes for one in optimizers)
    smaller = advise_smaller(optimizers)
    return Finding(
        "optimizer",
        "warning",
        f"the optimizer's state takes {format_bytes(state)}: {format_percent(share)} of the peak, which fills "
        f"{format_percent(filled)} of the memory",
        f"{smaller}: this leaves room for a larger batch, or for activations without checkpointing"
        if smaller
        else "no 8-bit version of this optimizer is known; with sharding (ZeRO, FSDP) each rank holds a part of the "
        "state",
        evidence={
            "state_bytes": state,
            "peak_bytes": peak,
            "share": round(share, 4),
            "bound": max_state_share,
            "filled": round(filled, 4),
            "filled_bound": min_filled,
            "kinds": [one.kind for one in optimizers],
        },
    )


def _experiment(finding: Finding) -> Experiment:
    """Return the change for a long step, or for too much state."""
    if "filled" in finding.evidence:
        return Experiment("optimizer.state_bits", value=8, quantity="peak_bytes")
    return Experiment("optimizer.fused", value=True)


RULE = Rule("optimizer", judge, order=60, experiment=_experiment)
