"""Compare recorded with bare steps of the same kind, some of either side in a row, one side directly after the other.

A shared processor has phases of half the speed, which last for seconds: each recorded turn is held against the bare
steps beside it. Models differ by where their tensors lie in memory: each round of blocks has new ones.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean, median
from time import perf_counter_ns, thread_time_ns
from typing import Any, ClassVar, Final

import torch
from torch import nn

import autoprof

from ..floors import BackwardFloor
from ..interleave import Progress
from ..ours import BOTH, Closed, Discard, NeverOpened, Recording, Sessions
from ..variant import Family, Variant
from ..workloads import WIDTH, Workload, tiny_layers

Pairs = dict[str, dict[str, list[float]]]
"""By clock and side (``own``, ``bare``), the mean step of each turn, in ns."""
CLOCKS: Final = ("wall", "cpu")


class Paused(Sessions):
    """A session whose steps are all inside ``session.pause()``: no probe records, and no step is open."""

    def open(self, workload: Workload) -> None:
        """Instrument the model and enter the pause."""
        super().open(workload)
        self._pause = contextlib.ExitStack()
        self._pause.enter_context(self.session.pause())

    def end_step(self) -> None:
        """Do nothing: no step is open."""

    def close(self) -> None:
        """Leave the pause and close the session."""
        self._pause.close()
        super().close()


class SwitchedOff(Sessions):
    """A session opened with ``AUTOPROF=0`` in the environment."""

    def open(self, workload: Workload) -> None:
        """Instrument the model while the switch is set."""
        before = os.environ.get("AUTOPROF")
        os.environ["AUTOPROF"] = "0"
        try:
            super().open(workload)
        finally:
            del os.environ["AUTOPROF"]
            if before is not None:
                os.environ["AUTOPROF"] = before


class InASession(Variant):
    """A session with ``config``, all default sinks into a folder of its own, and bare steps in a pause of it."""

    family: ClassVar[Family] = "autoprof"
    name = "session"
    label = "autoprof"

    def __init__(self, config: Mapping[str, Any], *, manual: bool) -> None:
        self._config, self._manual = dict(config), manual
        self._folder: str | None = None
        self.session: Any = None

    def open(self, workload: Workload) -> None:
        """Instrument the model."""
        self._folder = tempfile.mkdtemp(prefix="autoprof-bench-")
        config = {**self._config, "output": self._folder}
        self.session = autoprof.instrument(workload.model, config, optimizer=workload.optimizer)

    def end_step(self) -> None:
        """End the step, where the program would say so."""
        if self._manual:
            self.session.step()

    def close(self) -> None:
        """Close the session and remove its folder."""
        if self.session is not None:
            self.session.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self.session = self._folder = None


class TimedLayer(nn.Linear):
    """A tiny layer whose forward goes on for ``rest_ns``, writing memory, as other layers would in that time."""

    rest_ns = 0

    def __init__(self, memory: torch.Tensor) -> None:
        super().__init__(WIDTH, WIDTH)
        self._memory = list(memory)
        self._at = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's output: (B, WIDTH) to the same shape."""
        y = super().forward(x)
        if self.rest_ns:
            until = perf_counter_ns() + self.rest_ns
            while perf_counter_ns() < until:
                self._at = (self._at + 1) % len(self._memory)
                self._memory[self._at].add_(1)
        return y


def timed_chain(modules: int, length_ms: float) -> Workload:
    """Return a chain of layers with a step of this length, or as short as a step of so many modules can be.

    The layers write 8 MB between them, so that the marks of a module are not in the nearest cache.
    """
    memory = torch.zeros(128, 1 << 14)
    layers = [TimedLayer(memory) for _ in range(modules)]
    model, x = nn.Sequential(*layers), torch.randn(8, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(3):
        step()
    own_ns, _ = time_turn(step, 5)
    for layer in layers:
        layer.rest_ns = max(round((length_ms * 1e6 - own_ns) / modules), 0)
    config = {"targets": [{"match": r"\d+"}]}
    return Workload("chain", f"{modules} modules", model, step, config, optimizer, is_short=False)


def chain_variants(folder: str) -> tuple[list[Variant], list[Variant]]:
    """Return the variants of the recorded chain, and those that have to cost nothing."""

    def session(name: str, label: str, **changes: Any) -> Sessions:
        return Sessions(name, label, BOTH, output=folder, **changes)

    recorded = [
        BackwardFloor(),
        Recording("record_both", "autoprof: recording", BOTH),
        session("session_both", "autoprof: + resolution and statistics", sinks={}),
        session("sinks", "autoprof: + all default sinks"),
    ]
    free = [
        NeverOpened(),
        session("idle", "not recorded (every: 1000000000)", sinks={}, sample={"every": 1_000_000_000}),
        Paused("paused", "detached (in a pause)", BOTH, sinks={}),
        Closed("closed", "closed", BOTH, sinks={}),
        SwitchedOff("off", "AUTOPROF=0", BOTH, sinks={}),
    ]
    return recorded, list(free)


def time_turn(step: Callable[[], object], count: int, end: Callable[[], object] | None = None) -> tuple[float, float]:
    """Return the mean of so many steps, with the work after each, by the wall clock and by the thread's, in ns."""
    wall, processor = perf_counter_ns(), thread_time_ns()
    for _ in range(count):
        step()
        if end is not None:
            end()
    return (perf_counter_ns() - wall) / count, (thread_time_ns() - processor) / count


def no_pairs() -> Pairs:
    """Return the pairs of a variant that no turn was measured of."""
    return {clock: {"own": [], "bare": []} for clock in CLOCKS}


def blocks(variants: Sequence[Variant], rounds: int, steps: int, settling: int, progress: Progress) -> dict[str, Pairs]:
    """Measure each variant on the chain once a round, in random order, between two blocks of bare steps."""
    draw = random.Random(0)
    found = {variant.name: no_pairs() for variant in variants}
    for number in range(rounds):
        progress(f"chain: round {number + 1} of {rounds}")
        before = _block(Variant(), steps // 2, settling)
        for variant in draw.sample(list(variants), len(variants)):
            own = _block(variant, steps, settling)
            after = _block(Variant(), steps // 2, settling)
            for clock, own_ns, *bare_ns in zip(CLOCKS, own, before, after, strict=True):
                found[variant.name][clock]["own"].append(own_ns)
                found[variant.name][clock]["bare"].append(fmean(bare_ns))
            before = after
    return found


def _block(variant: Variant, steps: int, settling: int) -> tuple[float, float]:
    """Return the mean step of a block by each clock, with the variant's work after each step."""
    workload = tiny_layers(torch.device("cpu"))
    with settled(variant, workload, settling):
        return time_turn(workload.step, max(steps, 1), variant.end_step)


@contextlib.contextmanager
def settled(variant: Variant, workload: Workload, steps: int) -> Iterator[None]:
    """Open a variant and make some steps first, print nothing, and close the variant after the block."""
    with contextlib.redirect_stdout(Discard()):
        try:
            variant.open(workload)
            for _ in range(steps):
                workload.step()
                variant.end_step()
            gc.collect()
            yield
        finally:
            variant.close()


def turns(
    make: Callable[[], Workload],
    config: Mapping[str, Any],
    *,
    manual: bool,
    is_shared: bool,
    turn_s: float,
    count: int,
    settling: int,
    progress: Progress,
) -> dict[str, Any]:
    """Let recorded and bare steps take turns in one process; return the pairs and the steps of a turn.

    The bare turns are in a pause of the session. With ``is_shared`` they are of the same model: two models differ by
    some percent, for their tensors lie elsewhere, and a paused mark costs less than a microsecond. Else they are of a
    second model, and first both make bare turns, by whose ratio the two models differ. The first step of a turn is not
    timed.
    """
    own = make()
    bare = own if is_shared else make()
    variant, found = InASession(config, manual=manual), no_pairs()
    bare.step()
    step_ns, _ = time_turn(bare.step, 3)
    steps = max(round(turn_s * 1e9 / step_ns), 1)
    differ = [1.0, 1.0] if is_shared else _difference(own.step, bare.step, steps, max(count // 3, 1))
    with settled(variant, own, settling):
        for number in range(count):
            progress(f"{own.title}: turn {number + 1} of {count}")
            for side in ("own", "bare") if number % 2 else ("bare", "own"):
                if side == "own":
                    own.step()
                    variant.end_step()
                    wall, processor = time_turn(own.step, steps, variant.end_step)
                    times = wall / differ[0], processor / differ[1]
                else:
                    with variant.session.pause():
                        bare.step()
                        times = time_turn(bare.step, steps)
                for clock, step_ns in zip(CLOCKS, times, strict=True):
                    found[clock][side].append(step_ns)
    return {"title": own.title, "steps_of_a_turn": steps, "turns": count, "pairs": found}


def _difference(own: Callable[[], object], bare: Callable[[], object], steps: int, count: int) -> list[float]:
    """Return how much longer the bare steps of one model take than those of another one, by each clock."""
    pairs = [(time_turn(own, steps), time_turn(bare, steps)) for _ in range(count)]
    return [median(one[at] / other[at] for one, other in pairs) for at in range(len(CLOCKS))]
