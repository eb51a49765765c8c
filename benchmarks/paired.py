"""Compare recorded with bare steps of the same kind, some of either side in a row, one side directly after the other.

A shared processor has phases of half the speed, which last for seconds: each recorded turn is held against the bare
steps beside it. Models differ by where their tensors lie in memory: each round of blocks has new ones.
"""

from __future__ import annotations

import contextlib
import gc
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from time import perf_counter_ns, thread_time_ns
from typing import Any, Final

from .variants import Discard, InFolder, Variant
from .workloads import Workload

Pairs = dict[str, dict[str, list[float]]]
"""By clock and side (``own``, ``bare``), the mean step of each turn, in ns."""
CLOCKS: Final = ("wall", "cpu")
"""The time users wait, and the processor time of the training thread."""


def print_line(line: str) -> None:
    """Show progress on a terminal, in one line that is written over; nothing where it would only fill a log."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


@dataclass(slots=True)
class Blocks:
    """The pairs of each variant, why those that raised did, and the number of whole rounds."""

    pairs: dict[str, Pairs]
    errors: dict[str, str] = field(default_factory=dict)
    rounds: int = 0


def no_pairs() -> Pairs:
    """Return the pairs of a variant that no turn was measured of."""
    return {clock: {"own": [], "bare": []} for clock in CLOCKS}


def time_turn(
    step: Callable[[], object],
    count: int,
    end: Callable[[], object] | None = None,
    finish: Callable[[], object] | None = None,
) -> tuple[float, float]:
    """Return the mean of so many steps, with the work after each and at the end, by each clock, in ns."""
    wall, processor = perf_counter_ns(), thread_time_ns()
    for _ in range(count):
        step()
        if end is not None:
            end()
    if finish is not None:
        finish()
    return (perf_counter_ns() - wall) / count, (thread_time_ns() - processor) / count


def measure_blocks(
    make: Callable[[], Workload],
    variants: Sequence[Variant],
    *,
    rounds: int,
    steps: int,
    settling: int = 900,
    left_s: Callable[[], float] | None = None,
) -> Blocks:
    """Measure each variant once a round, in random order, between two blocks of bare steps.

    A variant that raises is left out from then on. With ``left_s``, a round begins only where the longest one fits.
    """
    draw, found, longest_s = random.Random(0), Blocks({one.name: no_pairs() for one in variants}), 0.0
    for number in range(rounds):
        if left_s is not None and number and left_s() < longest_s:
            break
        began_ns = perf_counter_ns()
        before = _block(make, Variant(), max(steps // 2, 1), settling)
        for variant in draw.sample(list(variants), len(variants)):
            if variant.name in found.errors or (left_s is not None and not number and left_s() <= 0):
                continue
            print_line(f"round {number + 1} of {rounds}: {variant.label}")
            try:
                own = _block(make, variant, steps, settling)
            except Exception as error:  # hooks of other tools may break a model: that is a result too
                found.errors[variant.name] = f"{type(error).__name__}: {error}".splitlines()[0]
                make().reset()
                continue
            after = _block(make, Variant(), max(steps // 2, 1), settling)
            for clock, own_ns, *bare_ns in zip(CLOCKS, own, before, after, strict=True):
                found.pairs[variant.name][clock]["own"].append(own_ns)
                found.pairs[variant.name][clock]["bare"].append(fmean(bare_ns))
            before = after
        found.rounds += 1
        longest_s = max(longest_s, (perf_counter_ns() - began_ns) / 1e9)
    print_line("")
    return found


def _block(make: Callable[[], Workload], variant: Variant, steps: int, settling: int) -> tuple[float, float]:
    """Return the mean step of a block by each clock, until the device has finished, with the variant's work."""
    workload = make()

    def finish() -> None:
        workload.synchronize()
        variant.flush()

    with settled(variant, workload, min(settling, variant.settling)):
        workload.synchronize()
        return time_turn(workload.step, steps, variant.end_step, finish)


@contextlib.contextmanager
def settled(variant: Variant, workload: Workload, steps: int) -> Iterator[None]:
    """Open a variant and make some steps first, print nothing, and close the variant after the block."""
    with contextlib.redirect_stdout(Discard()):
        try:
            variant.open(workload)
            for _ in range(steps):
                workload.step()
                variant.end_step()
            variant.flush()
            gc.collect()
            yield
        finally:
            variant.close()


def turns(
    make: Callable[[], Workload],
    config: Mapping[str, Any],
    *,
    is_shared: bool = True,
    turn_s: float,
    count: int,
    settling: int,
) -> dict[str, Any]:
    """Let recorded and bare steps take turns in one process; return the pairs and the steps of a turn.

    The bare turns are in a pause of the session. With ``is_shared`` they are of the same model: two models differ by
    some percent, for their tensors lie elsewhere, and a paused mark costs less than a microsecond. Else they are of a
    second model, and first both make bare turns, by whose ratio the two models differ. The first step of a turn is not
    timed.
    """
    own = make()
    bare = own if is_shared else make()
    variant, found = InFolder(dict(config)), no_pairs()
    differ = [1.0, 1.0] if is_shared else _difference(own.step, bare.step, turn_s, max(count // 3, 1))
    with settled(variant, own, settling):
        with variant.session.pause():
            steps = _steps_of(bare.step, turn_s)
        for number in range(count):
            print_line(f"{own.title}: turn {number + 1} of {count}")
            for side in ("own", "bare") if number % 2 else ("bare", "own"):
                if side == "own":
                    own.step()
                    wall, processor = time_turn(own.step, steps)
                    times = wall / differ[0], processor / differ[1]
                else:
                    with variant.session.pause():
                        bare.step()
                        times = time_turn(bare.step, steps)
                for clock, step_ns in zip(CLOCKS, times, strict=True):
                    found[clock][side].append(step_ns)
    print_line("")
    return {"title": own.title, "steps_of_a_turn": steps, "turns": count, "pairs": found}


def _steps_of(step: Callable[[], object], turn_s: float) -> int:
    """Return the number of steps in a turn of this length."""
    step()
    return max(round(turn_s * 1e9 / time_turn(step, 3)[0]), 1)


def _difference(own: Callable[[], object], bare: Callable[[], object], turn_s: float, count: int) -> list[float]:
    """Return how much longer the bare steps of one model take than those of another one, by each clock."""
    steps = _steps_of(bare, turn_s)
    own()
    pairs = [(time_turn(own, steps), time_turn(bare, steps)) for _ in range(count)]
    return [median(one[at] / other[at] for one, other in pairs) for at in range(len(CLOCKS))]
