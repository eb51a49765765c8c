"""The second seed's table: what a run would come to with one thing changed, from this run's own numbers."""

from __future__ import annotations

from typing import Final

from ..span import Phase
from ..summary import WhatIf
from .evidence import Evidence
from .thresholds import MIN_STEPS
from .time_rules import saved_bytes

BEYOND: Final = "beyond what was measured"
EIGHT_BIT: Final = "8-bit optimizer"
STATE_KINDS: Final = ("Adam", "AdamW", "SGD", "Adagrad", "RMSprop")
"""Optimizers of torch that bitsandbytes has in 8 bits."""


def what_if(seen: Evidence) -> tuple[WhatIf, ...]:
    """Return the changes whose inputs this run has, each with what it assumes.

    The arithmetic is the seed's: time of the phases that follow the batch times the factor, the others as they were.
    """
    if seen.summary.steps < MIN_STEPS:
        return ()
    found = (_eight_bit(seen), _batch(seen, 2), _batch(seen, 3), _no_checkpointing(seen))
    return tuple(one for one in found if one is not None)


def _eight_bit(seen: Evidence) -> WhatIf | None:
    """Block-wise 8-bit state takes one byte a value (Dettmers et al. 2021, arXiv:2110.02861)."""
    facts = [fact for fact in seen.facts.optimizers or () if fact.kind in STATE_KINDS and fact.state_bytes]
    if not facts:
        return None
    freed = sum(fact.state_bytes * (fact.state_word_bytes - 1) // fact.state_word_bytes for fact in facts)
    peak = _peak(seen)
    return WhatIf(
        EIGHT_BIT,
        step_ns=seen.summary.step_mean_ns,
        throughput=seen.summary.throughput,
        memory_bytes=None if peak is None else peak - freed,
        memory_change_bytes=-freed,
        assumed="the state was counted, its 8-bit form is one byte a value; step time as it was, which nobody measured",
    )


def _batch(seen: Evidence, times: int) -> WhatIf | None:
    run = seen.summary
    rate = run.throughput
    if rate is None:
        return None
    fixed = run.phases.get(Phase.OPTIMIZER, 0) + run.phases.get(Phase.OTHER, 0)
    step_ns = (fixed + times * (run.total_step_ns - fixed)) // run.steps
    static, peak = run.memory.get("allocated_bytes"), run.memory.get("peak_bytes")
    memory = None if static is None or peak is None else static + times * (peak - static)
    return WhatIf(
        f"batch x {times}",
        step_ns=step_ns,
        throughput=rate * run.step_mean_ns * times / max(step_ns, 1),
        memory_bytes=memory,
        memory_change_bytes=None if memory is None or peak is None else memory - peak,
        assumed=f"{BEYOND}: all but optimizer and other grows with the batch; a device with room to spare does better"
        + _fits(seen, memory),
    )


def _no_checkpointing(seen: Evidence) -> WhatIf | None:
    run = seen.summary
    again = run.phases.get(Phase.RECOMPUTE, 0)
    if not again:
        return None
    step_ns, saved, peak = (run.total_step_ns - again) // run.steps, saved_bytes(seen), _peak(seen)
    memory = None if saved is None or peak is None else peak + saved
    kept = "memory was not measured by module" if saved is None else "activations at their measured size"
    return WhatIf(
        "no checkpointing",
        step_ns=step_ns,
        throughput=None if run.throughput is None else run.throughput * run.step_mean_ns / max(step_ns, 1),
        memory_bytes=memory,
        memory_change_bytes=saved,
        assumed=f"the measured recompute time falls away, the rest stays; {kept}" + _fits(seen, memory),
    )


def _peak(seen: Evidence) -> int | None:
    memory = seen.summary.memory
    return memory.get("peak_bytes", memory.get("rss_peak_bytes"))


def _fits(seen: Evidence, memory: int | None) -> str:
    capacity = seen.facts.memory_capacity_bytes
    if memory is None or capacity is None:
        return ""
    return "" if memory <= capacity else "; it does not fit into the memory"
