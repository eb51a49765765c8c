"""``python -m benchmarks.steps``: what whole steps and processes cost, the longest steps, and memory."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter_ns
from typing import Any, Final

import torch
from torch import nn

import autoprof
from autoprof.testing import ListSink

from . import longest
from .machine import keep_memory
from .paired import print_line, time_turn, turns
from .processes import PROGRAMS, Process, load, run_program
from .programs import gpt2
from .stats import Estimate, difference, ratio
from .table import Bound, at_most, figures, interval, kept, limits, parser, percent, write
from .variants import Discard
from .workloads import WIDTH, Workload

STEPS: Final = 120
"""Steps of a run of the GPT."""
RECORDED: Final = 118
"""Steps of it that have to be recorded."""
BUSY: Final = 4
"""Busy processes beside a run."""
MODULES: Final = 200
LENGTHS_MS: Final = (50.0, 500.0)
_IMPORTS: Final = (
    "from time import perf_counter as t; a = t(); import torch; b = t(); import autoprof; c = t(); "
    "autoprof.instrument; print(b - a, t() - b)"
)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    gpt: str = "4,256,8,8192,4,64"
    """Layers, width, heads, vocabulary, batch and length of the GPT."""
    steps: int = STEPS
    runs: int = 3
    """Bare and recorded processes of the GPT, and runs beside busy processes."""
    short_runs: int = 8
    """Bare and recorded processes of the convolutions, which take a few seconds."""
    turn_s: float = 1.0
    turns: int = 24
    settling: int = 15
    """Steps of a session before its turns; a compiled model is compiled in the first one."""
    modules: int = MODULES
    lengths_ms: tuple[float, ...] = LENGTHS_MS
    images: tuple[str, str] = ("20", "64")
    """Steps of the convolutions, and the side of their images."""
    defaults: tuple[tuple[int, float, int], ...] = ((40, 11.0, 1000), (60, 40.0, 150), (1000, 40.0, 500))
    """Modules, length of a step in ms, and number of steps of runs by default."""


QUICK: Final = Size(
    "1,16,2,32,1,8", 10, 1, 1, 0.05, 2, 2, 8, (5.0,), ("2", "8"), ((8, 2.0, 20), (20, 2.0, 20))
)  # fmt: skip

INTRO: Final = """\
# What do whole steps and whole processes cost?

**Result**: {result}

*Overhead* is the time of recorded steps beyond that of bare steps of the same process, in turns of a second, the
bare ones in `session.pause()`; one thread of torch. Its interval holds the median with 95 %.
"""
TAILS: Final = """\
Trainings by default on a terminal, each a process of its own, bare and with autoprof in turn. An *extra* is what a
step takes beyond the median one. Memory is that of a run in which every step is recorded, with all default sinks.
"""


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
    return Workload("chain", f"{modules} modules", model, step, {"targets": [{"match": r"\d+"}]}, optimizer)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write. Return 1 where a limit is not kept."""
    options = parser("benchmarks.steps", __doc__).parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    keep_memory()
    size = QUICK if options.quick else Size()
    gpt, runs = _gpt(size)
    bounds = [*gpt, _beside_load(size, runs["own"][-1]), *_lengths(size)]
    processes, stated = _processes(size, runs)
    bounds += processes
    defaults = [_by_default(size, *one) for one in size.defaults]
    tails, raw = longest.measure(quick=options.quick)
    short = raw["tails"]["0.2 ms"]["autoprof"]
    result = (
        f"a GPT-2 of 4 layers: {gpt[0].measured}; overhead {gpt[1].measured}; "
        f"{short['max']:.1f} ms for the longest of {short['steps']:,} steps of 0.2 ms; {kept([*bounds, *tails])}"
    )
    lines = [
        INTRO.format(result=result),
        *limits(bounds),
        "",
        "## How many steps are recorded by default?",
        "",
        *figures("recorded", ("steps of", "recorded", "by the report's own account"), [_gpt_row(runs), *defaults]),
        "",
        "## What is done outside of the steps?",
        "",
        *figures("outside", ("work", "time"), [_loading(1 if options.quick else 9), *stated]),
        "",
        "## How long are the longest steps, and does memory grow?",
        "",
        TAILS,
        *limits(tails, "tails"),
        "",
        *figures("longest", longest.HEADER, longest.rows(raw["tails"])),
    ]
    write(options, lines, {"runs": {side: [one.to_dict() for one in ones] for side, ones in runs.items()}, **raw})
    return int(any(bound.kept is False for bound in [*bounds, *tails]))


def _turns(size: Size, make: Callable[[], Workload], config: Mapping[str, Any], *, is_shared: bool = True) -> Estimate:
    """Return the ratio of recorded to bare steps."""
    found = turns(make, config, is_shared=is_shared, turn_s=size.turn_s, count=size.turns, settling=size.settling)[
        "pairs"
    ]["wall"]
    return ratio(found["own"], found["bare"])


def _in_turns(bare: Sequence[str], own: Sequence[str], runs: int) -> dict[str, list[Process]]:
    """Run two programs as often, in random order."""
    found: dict[str, list[Process]] = {"own": [], "bare": []}
    draw = random.Random(0)
    for number in range(runs):
        print_line(f"processes: run {number + 1} of {runs}")
        for side in draw.sample(["own", "bare"], 2):
            found[side].append(run_program(own if side == "own" else bare, 1))
    return found


def _gpt(size: Size) -> tuple[list[Bound], dict[str, list[Process]]]:
    """Return the steps recorded of a GPT with one line, and its overhead in turns: eager, and each step compiled."""
    program = [str(PROGRAMS / "gpt2.py"), "--sizes", size.gpt, "--steps", str(size.steps)]
    runs = _in_turns(program, [*program, "--autoprof"], size.runs)
    recorded = [one.figure("steps") for one in runs["own"]]
    wanted = -(-RECORDED * size.steps // STEPS)
    text = f"{', '.join(map(str, recorded))} of {size.steps} steps recorded, {runs['own'][-1].figure('rows')} rows"

    def make(*, is_compiled: bool = False) -> Workload:
        model, step = gpt2.make(tuple(map(int, size.gpt.split(","))))
        if is_compiled:
            model.compile()
        return Workload("gpt2", "GPT-2", model, step, {"targets": [{"match": ".+"}]})

    compiled = _turns(size, partial(make, is_compiled=True), {"sample": {"budget": None}})
    bounds = [
        Bound("GPT-2, one line: steps recorded", f"≥ {wanted}", text, min(recorded) >= wanted),
        at_most("GPT-2, one line: overhead", 0.5, percent(_turns(size, make, {})), unit=" %"),
        Bound("GPT-2, compiled, every step: overhead", "", interval(percent(compiled), unit=" %"), None),
    ]
    return bounds, runs


def _gpt_row(runs: Mapping[str, Sequence[Process]]) -> tuple[str, ...]:
    own = runs["own"][-1]
    return (
        f"{own.figure('step_ms'):.0f} ms (GPT-2, 4 layers)",
        f"{own.figure('steps')} of {own.figure('all_steps')}",
        f"{100 * own.figure('overhead'):.2f} %",
    )


def _beside_load(size: Size, quiet: Process) -> Bound:
    """Compare runs beside busy processes with a quiet one: they record as many steps and rows."""
    program = [str(PROGRAMS / "gpt2.py"), "--sizes", size.gpt, "--steps", str(size.steps), "--autoprof"]
    pairs = []
    with load(BUSY):
        for number in range(size.runs):
            print_line(f"beside {BUSY} busy processes: run {number + 1} of {size.runs}")
            run = run_program(program, 1)
            pairs.append((run.figure("steps"), run.figure("rows")))
    wanted = quiet.figure("steps"), quiet.figure("rows")
    same = sum(pair[0] >= wanted[0] - 1 and pair[1] == wanted[1] for pair in pairs)
    text = f"{same} of {len(pairs)} runs; fewest {min(pairs)[0]} steps, {min(rows for _, rows in pairs)} rows"
    subject = f"GPT-2 beside {BUSY} busy processes: steps, rows"
    return Bound(subject, f"{wanted[0]}, {wanted[1]} in each", text, same == len(pairs))


def _lengths(size: Size) -> list[Bound]:
    """Measure many modules in steps of several lengths, every step, all default sinks."""
    config = {"sample": {"budget": None}, "targets": [{"match": r"\d+"}]}
    bounds = []
    for length_ms in size.lengths_ms:
        one = percent(_turns(size, partial(timed_chain, size.modules, length_ms), config, is_shared=False))
        subject = f"{size.modules} modules, every step of {length_ms:g} ms, all default sinks: overhead"
        bounds.append(at_most(subject, 50 / length_ms, one, unit=" %"))
    return bounds


def _processes(size: Size, gpt: dict[str, list[Process]]) -> tuple[list[Bound], list[tuple[str, str]]]:
    """Compare whole processes from start to exit; return their limits, and what their reports state."""
    program = [str(PROGRAMS / "convolutions.py"), *size.images]
    cases = {
        "`autoprof run` of 30 convolutions": _in_turns(program, ["-m", "autoprof", "run", *program], size.short_runs),
        "GPT-2 with one line": gpt,
    }
    bounds, rows = [], []
    for name, runs in cases.items():
        sides = {side: [one.wall_s for one in runs[side]] for side in runs}
        extra = difference(sides["own"], sides["bare"])
        subject = f"{name}: process from start to exit, over bare ({median(sides['bare']):.1f} s)"
        bounds.append(at_most(subject, 0.8, extra, unit=" s"))
        rows.append((f"{name}: the report states", runs["own"][-1].figure("stated")))
    return bounds, rows


def _loading(repetitions: int) -> tuple[str, str]:
    """Return the time that a new interpreter takes to load autoprof after torch."""
    seconds = []
    for _ in range(repetitions):
        done = subprocess.run([sys.executable, "-c", _IMPORTS], capture_output=True, text=True, check=True)
        seconds.append(float(done.stdout.split()[1]))
    return "load autoprof after torch", f"{median(seconds):.2f} s"


def _by_default(size: Size, modules: int, length_ms: float, steps: int) -> tuple[str, ...]:
    """Return how many steps of a run by default are recorded, and the modules that keep rows."""
    print_line(f"by default: {modules} modules, steps of {length_ms:g} ms")
    workload, sink = timed_chain(modules, length_ms), ListSink()
    with tempfile.TemporaryDirectory(prefix="autoprof-bench-") as folder, contextlib.redirect_stdout(Discard()):
        config = {"output": folder, "targets": [{"match": r"\d+"}]}
        with autoprof.instrument(workload.model, config, optimizer=workload.optimizer, sinks=[sink]) as session:
            step_ns, _ = time_turn(workload.step, steps)
        overhead = session.summary().overhead
    rows = len({fqn for fqn in sink.frames[-1].layout.fqns if fqn is not None})
    print_line("")
    return (
        f"{step_ns / 1e6:.0f} ms, {modules:,} modules",
        f"{len(sink.frames)} of {steps:,}; {rows} modules have rows at the end",
        f"{100 * overhead:.2f} %",
    )


if __name__ == "__main__":
    sys.exit(main())
