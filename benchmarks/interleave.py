"""Take turns: one block of each variant a round, in an order drawn anew, so that drift falls on all alike."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from time import perf_counter_ns
from typing import Any, Final

from .variant import Times, Variant
from .workloads import Workload

Progress = Callable[[str], None]
NO_TIME: Final = "not measured: no time left"


@dataclass(frozen=True, slots=True)
class Block:
    """Some steps of one variant in a row. ``value_ns`` is the block's step time.

    ``steps_ns`` are the user's steps, ``ends_ns`` the variant's work after each, ``flush_ns`` its postponed work.
    """

    round: int
    value_ns: float
    steps_ns: list[int]
    ends_ns: list[int]
    flush_ns: int
    whole_ns: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


@dataclass(slots=True)
class Measured:
    """The blocks of each variant, why those that could not run could not, and how many whole rounds there are."""

    blocks: dict[str, list[Block]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    rounds: int = 0


def time_steps(
    step: Callable[[], object],
    count: int,
    synchronize: Callable[[], object],
    end: Callable[[], object] | None = None,
    flush: Callable[[], object] | None = None,
    clock: Callable[[], int] = perf_counter_ns,
) -> Times:
    """Time ``count`` steps one by one, the work after each, and all together until the device has finished."""
    steps, ends = [0] * count, [0] * count
    synchronize()
    began = clock()
    for i in range(count):
        start = clock()
        step()
        between = clock()
        steps[i] = between - start
        if end is not None:
            end()
            ends[i] = clock() - between
    synchronize()
    before = clock()
    if flush is not None:
        flush()
    now = clock()
    return Times(steps, ends, now - before, now - began)


def run_block(workload: Workload, variant: Variant, number: int, *, warmup: int, steps: int) -> Block:
    """Open the variant, let it warm up, time its steps with the garbage collector on, and close it again."""
    try:
        variant.open(workload)
        times = variant.remote_block(warmup, steps)
        if times is None:
            for _ in range(max(warmup, variant.least_warmup) if workload.is_short else warmup):
                workload.step()
                variant.end_step()
            variant.flush()
            gc.collect(1)
            times = time_steps(
                workload.step, steps, workload.synchronize, variant.end_step, variant.flush, workload.clock
            )
    finally:
        variant.close()
    return Block(number, block_value(times, asynchronous=workload.asynchronous), *times)


def block_value(times: Times, *, asynchronous: bool) -> float:
    """Return a step's time: the median of the user's steps plus the mean of the work after them, which may be batched.

    On a device the host runs ahead: only the whole block has a length that means anything.
    """
    count = len(times.steps_ns)
    if asynchronous:
        return times.whole_ns / count
    return float(median(times.steps_ns)) + (sum(times.ends_ns) + times.flush_ns) / count


def interleave(
    workload: Workload,
    variants: Sequence[Variant],
    measured: Measured,
    *,
    rounds: range,
    steps: int,
    warmup: int,
    seed: int = 0,
    progress: Progress = lambda line: None,
    left_s: Callable[[], float] | None = None,
) -> None:
    """Add ``rounds`` of blocks to ``measured``. A variant that raises is left out from then on, and the reason kept.

    With ``left_s``, the seconds left, a round begins only if the longest one so far fits. Where not even the first one
    fits, the variants that are left are not measured, except the first, which all are compared with.
    """
    order = list(variants)
    draw = random.Random(seed + rounds.start)
    longest_s = 0.0
    for number in rounds:
        if left_s is not None and measured.rounds and left_s() < longest_s:
            return
        began_ns = perf_counter_ns()
        progress(f"{workload.name}: round {number + 1} of {rounds.stop}")
        draw.shuffle(order)
        gc.collect()
        for variant in order:
            if variant.name in measured.errors:
                continue
            if left_s is not None and not measured.rounds and variant is not variants[0] and left_s() <= 0:
                measured.errors[variant.name] = NO_TIME
                continue
            try:
                block = run_block(workload, variant, number, warmup=warmup, steps=steps)
            except Exception as error:  # hooks of other tools may break a model: that is a result too
                measured.errors[variant.name] = f"{type(error).__name__}: {error}".splitlines()[0]
                measured.blocks.pop(variant.name, None)
                workload.reset()
            else:
                measured.blocks.setdefault(variant.name, []).append(block)
        measured.rounds += 1
        longest_s = max(longest_s, (perf_counter_ns() - began_ns) / 1e9)


def steps_per_block(workload: Workload, seconds: float, *, least: int = 3, most: int = 400) -> int:
    """Return how many bare steps fill ``seconds``."""
    for _ in range(2):
        workload.step()
    times = time_steps(workload.step, 3, workload.synchronize)
    return max(least, min(most, round(seconds * 1e9 / max(1, times.whole_ns / 3))))
