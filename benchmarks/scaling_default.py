"""One default run of ``benchmarks.scaling``: a session from its opening to its end, in a process of its own.

In a process with the other variants the run would pay for them: the garbage collector, started by an allocation of
autoprof, took 0.2 s for what ``torch.profiler`` had left behind.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Any, ClassVar, Final

import torch

import autoprof

from .interleave import time_steps
from .ours import Discard
from .variant import Family, Variant
from .workloads import Workload

TURN_S: Final = 0.1
"""The shortest turn of the session, after which the bare model takes steps."""
BARE_SHARE: Final = 0.5
"""The bare steps of a turn, as a part of the session's."""
FIRST_STEPS: Final = 3
"""Steps of each model before anything is timed: they allocate."""
AFTER_S: Final = (1.0, 5.0)
"""Times after which the cost so far is stated, beside that of the whole run."""


class Default(Variant):
    """autoprof as it comes: no configuration, all default sinks, the budget of 1 %."""

    family: ClassVar[Family] = "autoprof"
    name = "default"
    label = "autoprof, by default"

    def __init__(self) -> None:
        self.session: Any = None
        self._folder: str | None = None

    def open(self, workload: Workload) -> None:
        """Instrument the model; only the folder of the run is not the default."""
        self._folder = tempfile.mkdtemp(prefix="autoprof-bench-")
        self.session = autoprof.instrument(workload.model, {"output": self._folder})

    def end_step(self) -> None:
        """End the session's step."""
        self.session.step()

    @property
    def is_recording(self) -> bool:
        """Whether the open step is recorded; a pause in it would attach and detach the probes."""
        recording: bool = self.session._steps.is_recording
        return recording

    def close(self) -> None:
        """Close the session and remove its folder."""
        if self.session is not None:
            self.session.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self.session = self._folder = None


@dataclass
class Turn:
    """Consecutive steps of the session and the bare steps after them: counts, seconds and processor seconds."""

    steps: int
    seconds: float
    cpu_s: float
    bare_steps: int
    bare_seconds: float
    bare_cpu_s: float

    @property
    def added_s(self) -> float:
        """The time that the session added to its steps."""
        return self.seconds - self.steps * self.bare_seconds / self.bare_steps

    @property
    def added_cpu_s(self) -> float:
        """The processor time that the session added to its steps."""
        return self.cpu_s - self.steps * self.bare_cpu_s / self.bare_steps


@dataclass
class DefaultRun:
    """A whole run: set-up, turns, and end."""

    opening_s: float = 0.0
    closing_s: float = 0.0
    overhead: float | None = None
    """The cost of the steps by the session's own account, as a fraction of their time."""
    turns: list[Turn] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, with the cost after each of ``AFTER_S`` and of the whole run."""
        whole_s = sum(turn.seconds for turn in self.turns)
        after = [self._after(seconds) for seconds in (*(one for one in AFTER_S if one < 0.9 * whole_s), whole_s)]
        return {
            "opening_s": self.opening_s,
            "closing_s": self.closing_s,
            "overhead": self.overhead,
            "after": after,
            "turns": [vars(turn) for turn in self.turns],
        }

    def _after(self, seconds: float) -> dict[str, float]:
        """Return the cost of the turns up to this time: the time that they added, by the clock and of the processor."""
        spent, taken = 0.0, list[Turn]()
        for turn in self.turns:
            if taken and spent >= seconds:
                break
            taken.append(turn)
            spent += turn.seconds
        added = sum(turn.added_s for turn in taken)
        return {
            "seconds": spent,
            "steps": sum(turn.steps for turn in taken),
            "added_s": added,
            "added_cpu_s": sum(turn.added_cpu_s for turn in taken),
            "cost": added / max(spent - added, 1e-9),
        }

    @property
    def cost(self) -> float:
        """The time that the session added to all steps, as a fraction of the bare ones."""
        added = sum(turn.added_s for turn in self.turns)
        return added / max(sum(turn.seconds for turn in self.turns) - added, 1e-9)


def measure_apart(make: Callable[[], Workload], seconds: float) -> DefaultRun:
    """Measure a default run in a new process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, make, seconds).result()


def measure(make: Callable[[], Workload], seconds: float) -> DefaultRun:
    """Measure a default run of about ``seconds`` in this process; the prints of the session are dropped."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with contextlib.redirect_stdout(Discard()), contextlib.redirect_stderr(Discard()):
        return _measure(make(), make(), seconds)


def _measure(workload: Workload, bare: Workload, seconds: float) -> DefaultRun:
    default, run, spent_s = Default(), DefaultRun(), 0.0
    for one in (workload, bare):
        for _ in range(FIRST_STEPS):
            one.step()
    gc.collect()
    began = perf_counter()
    default.open(workload)
    run.opening_s = perf_counter() - began
    try:
        while spent_s < seconds:
            run.turns.append(_turn(default, workload, bare, seconds - spent_s))
            spent_s += run.turns[-1].seconds
        run.overhead = default.session.summary().overhead
    finally:
        began = perf_counter()
        default.close()
        run.closing_s = perf_counter() - began
    return run


def _turn(default: Default, workload: Workload, bare: Workload, left_s: float) -> Turn:
    """Let the session take steps until it leaves some unsampled, then the bare model, which belongs to no step."""
    step, end, steps = workload.step, default.end_step, 0
    began_cpu, began = process_time(), perf_counter()
    spent_s = 0.0
    while spent_s < min(TURN_S, left_s) or (default.is_recording and spent_s < left_s):
        step()
        end()
        steps += 1
        spent_s = perf_counter() - began
    cpu_s = process_time() - began_cpu
    bare_steps = max(round(BARE_SHARE * steps), 1)
    with default.session.pause():
        began_cpu = process_time()
        bare_s = time_steps(bare.step, bare_steps, bare.synchronize).whole_ns / 1e9
        return Turn(steps, spent_s, cpu_s, bare_steps, bare_s, process_time() - began_cpu)
