"""The second seed's table: what a run would come to with one thing changed, from this run's own numbers."""

from __future__ import annotations

from typing import Final

from .._units import format_ms
from ..frame import TRAINING_LANE, Phase
from ..summary import WhatIf
from .evidence import Evidence
from .optimizers import has_eight_bits
from .recompute import saved_bytes
from .thresholds import MIN_STEPS

BEYOND: Final = "beyond what was measured"
EIGHT_BIT: Final = "8-bit optimizer"
NO_CHECKPOINTING: Final = "no checkpointing"
TOGETHER: Final = "all together"
MOST: Final = 3
"""The largest batch of the table, in batches of this run."""


def what_if(seen: Evidence) -> tuple[WhatIf, ...]:
    """Return the changes whose inputs this run has, each with what it assumes.

    The arithmetic is the seed's: the time of the phases that follow the batch times the factor, the others as they
    were. A larger batch and the last line, all changes at once, are beyond what was measured, and say so.
    """
    if seen.summary.steps < MIN_STEPS:
        return ()
    again = seen.summary.phases.get(Phase.RECOMPUTE, 0)
    freed, saved = _freed(seen), saved_bytes(seen) if again else 0
    found = []
    if freed:
        word = "its state in 8 bits, counted tensor by tensor; the step's time as it was, which nobody measured"
        if "peak_bytes" not in seen.summary.memory:
            word += "; such optimizers run on a GPU"
        found.append(_change(seen, EIGHT_BIT, word, freed=freed))
    most = 1 if seen.summary.throughput is None else MOST
    for times in range(2, most + 1):
        word = _batch_word(seen) if times == 2 else f"{BEYOND}, as for batch x 2"
        found.append(_change(seen, f"batch x {times}", word, times=times))
    if again:
        kept = "what they keep was not measured (memory: true on a target)"
        if saved is not None:
            kept = "at most all that was measured to be computed again is kept"
        word = f"the measured recompute falls away, the rest of the step stays; {kept}"
        found.append(_change(seen, NO_CHECKPOINTING, word, again=again, saved=saved))
    if (freed > 0) + (again > 0) + (most > 1) > 1:
        batch = f" with batch x {most}" if most > 1 else ""
        word = f"{BEYOND}: the changes at once{batch}, each with what it assumes"
        found.append(_change(seen, TOGETHER, word, times=most, freed=freed, again=again, saved=saved))
    return tuple(found)


def _change(
    seen: Evidence,
    change: str,
    assumed: str,
    *,
    times: int = 1,
    freed: int = 0,
    again: int = 0,
    saved: int | None = 0,
) -> WhatIf:
    """Compute a line: the batch ``times`` as large, ``freed`` bytes of state gone, recompute gone for ``saved`` bytes.

    Without ``again`` there is no recompute to lose; ``saved`` None is not known.
    """
    run = seen.summary
    still = _fixed_ns(seen)
    step_ns = round((still + times * (run.total_step_ns - again - still)) / run.steps)
    ratio = step_ns / times / max(run.step_mean_ns, 1)
    before, memory = _peak(seen), _memory(seen, times, freed, saved)
    capacity = seen.facts.memory_capacity_bytes
    fits = None if memory is None or capacity is None else memory <= capacity
    if fits is False:
        assumed += "; it does not fit into the memory"
    changed = None if memory is None or before is None else memory - before
    if changed is None and times == 1 and saved is not None:
        changed = saved - freed
    progress = run.progress
    return WhatIf(
        change,
        step_ns=step_ns,
        throughput=None if run.throughput is None else run.throughput / max(ratio, 1e-12),
        memory_bytes=memory,
        memory_change_bytes=changed,
        assumed=assumed,
        time_ratio=ratio,
        memory_share=None if memory is None or not capacity else memory / capacity,
        fits=fits,
        epoch_ns=None if progress is None or progress.epoch_ns is None else round(progress.epoch_ns * ratio),
        remaining_ns=None
        if progress is None or progress.remaining_ns is None
        else round(progress.remaining_ns * ratio),
    )


def _freed(seen: Evidence) -> int:
    """Return what the 8-bit forms of these optimizers would free."""
    facts = [fact for fact in seen.facts.optimizers or () if has_eight_bits(fact)]
    return sum(fact.state_bytes - fact.eight_bit_bytes for fact in facts if fact.eight_bit_bytes is not None)


def _fixed_ns(seen: Evidence) -> int:
    """Return the time of all steps that no larger batch makes longer: of the parameters, and of the host's launches."""
    run = seen.summary
    parameters_ns = sum(ns for phase, ns in run.phases.items() if not phase.traits.scales_with_batch)
    return min(parameters_ns + _launch_ns(seen), run.total_step_ns)


def _launch_ns(seen: Evidence) -> int:
    """Return the device time that was as long as the host took to launch; one launch serves any batch."""
    follow = (Phase.FORWARD, Phase.BACKWARD)
    rows = [row for row in seen.summary.rows if row.lane == TRAINING_LANE and row.phase in follow]
    return round(sum(row.self_ns * (row.host_bound or 0.0) for row in rows))


def _batch_word(seen: Evidence) -> str:
    launches = _launch_ns(seen)
    if seen.summary.clock == "host":
        rest = "all but optimizer and communication grows with the batch; a device with room to spare does better"
    else:
        spent = format_ms(launches / seen.summary.steps)
        rest = f"all but optimizer, communication and {spent} of the host's launches grows with the batch"
    return f"{BEYOND}: {rest}"


def _memory(seen: Evidence, times: int, freed: int, saved: int | None) -> int | None:
    peak = _peak(seen)
    if peak is None or saved is None:
        return None
    if times == 1:
        return max(peak - freed, 0) + saved
    held = _held(seen)
    return None if held is None else max(held - freed, 0) + times * (max(peak - held, 0) + saved)


def _held(seen: Evidence) -> int | None:
    """Return what is on the device whatever the batch: what was counted, else what a step ends with."""
    memory = seen.summary.memory
    if "allocated_bytes" not in memory:
        return None
    whole = seen.summary.memory_table[0] if seen.summary.memory_table else None
    if whole is None or None in (whole.parameter_bytes, whole.gradient_bytes, whole.state_bytes):
        return memory["allocated_bytes"]
    return whole.held_bytes


def _peak(seen: Evidence) -> int | None:
    memory = seen.summary.memory
    return memory.get("peak_bytes", memory.get("rss_peak_bytes"))
