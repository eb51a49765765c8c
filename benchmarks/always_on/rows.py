"""The rows of the table: each is measured by one function, which returns its bounds and its samples."""

from __future__ import annotations

import contextlib
import json
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median as middle
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

import autoprof
from autoprof import StepFrame, Summary

from ..interleave import Progress
from ..ours import Discard
from ..stats import Estimate, cost_ratio, difference, ratio
from ..table import columns
from ..verdict import Bound, at_most
from ..workloads import TINY_LAYERS, Workload, reference
from . import paired
from .processes import PROGRAMS, ROOT, Process, load, run_on_terminal, run_program
from .programs import gpt2
from .scale import Scale

NUMBERS: Final = tuple(range(1, 14))
ENGINE: Final = ("_capture", "_resolve", "_stats", "_session")
MIB: Final = 1 << 20
GPT_RECORDED: Final = 118
"""Steps of 120 that have to be recorded; of another number, as large a part."""
ONE: Final = 1.005
"""The largest ratio that is written as 1.00."""
EXTRA_NS: Final = 5_000_000
"""The longest extra of a step of 0.2 ms."""
NOTICED_NS: Final = 1_000_000
"""An extra of a step of 0.2 ms that counts as one of the two a second."""
LONG_REST_NS: Final = 10_000_000

Found = tuple[list[Bound], dict[str, Any]]
Times = npt.NDArray[np.int64]


@dataclass
class Bench:
    """The rows of one run: its size, its clock, and the processes that several rows read."""

    scale: Scale
    chosen: frozenset[int] = frozenset(NUMBERS)
    clock: str = "wall"
    threads: int = 1
    progress: Progress = lambda line: None
    tables: list[str] = field(default_factory=list)
    """Lines that are printed above the bounds."""
    _gpt: dict[str, list[Process]] | None = None

    def measure(self) -> dict[str, Any]:
        """Measure the chosen rows; return their bounds and samples as plain JSON types."""
        results: dict[str, Any] = {"scale": self.scale.name, "clock": self.clock, "rows": {}, "bounds": []}
        for numbers, row in ROWS:
            if not self.chosen.isdisjoint(numbers):
                bounds, samples = row(self)
                results["bounds"] += [
                    bound.to_dict() for bound in bounds if int(bound.subject.split()[0]) in self.chosen
                ]
                results["rows"][",".join(map(str, numbers))] = samples
        results["tables"] = self.tables
        return results

    def gpt_runs(self) -> dict[str, list[Process]]:
        """Return the bare and the recorded processes of the GPT on the machine as it is; they run once."""
        if self._gpt is None:
            bare = [str(PROGRAMS / "gpt2.py"), *self.scale.gpt.arguments(), "--steps", str(self.scale.gpt_steps)]
            self._gpt = self.in_turns("GPT", bare, [*bare, "--autoprof"], self.scale.gpt_runs)
        return self._gpt

    def in_turns(self, name: str, bare: Sequence[str], own: Sequence[str], runs: int) -> dict[str, list[Process]]:
        """Run two programs as often, in random order."""
        found: dict[str, list[Process]] = {"own": [], "bare": []}
        draw = random.Random(0)
        for number in range(runs):
            self.progress(f"{name}: run {number + 1} of {runs}")
            for side in draw.sample(["own", "bare"], 2):
                found[side].append(run_program(own if side == "own" else bare, self.threads))
        return found


def chain(bench: Bench) -> Found:
    """Rows 1 to 3 and 9: the chain of tiny layers, each variant beside bare steps."""
    scale, chosen = bench.scale, bench.chosen
    with tempfile.TemporaryDirectory(prefix="autoprof-bench-") as folder:
        recorded, free = paired.chain_variants(folder)
        recorded, free = recorded if chosen & {1, 2, 3} else [], free if 9 in chosen else []
        variants = [*recorded, *free]
        found = paired.blocks(variants, scale.rounds, scale.block_steps, scale.settling, bench.progress)
    bounds = []
    for number, name, subject, limit in (
        (1, "record_both", "recording", 0.25),
        (2, "session_both", "with resolution and statistics", 0.40),
        (3, "sinks", "with all default sinks", 0.70),
    ):
        if name in found:
            over = _over(found[name][bench.clock], found["floor_both"][bench.clock])
            bounds.append(at_most(f"{number} {subject}, over the floor", limit, over))
    for variant in free:
        one = _ratio(found[variant.name][bench.clock])
        text = f"{one.value:.3f} [{one.low:.3f}, {one.high:.3f}]"
        subject = f"9 {variant.label.removeprefix('autoprof: ')}, over bare"
        bounds.append(Bound(subject, "1.00", text, one.value < ONE, one.excludes(ONE)))
    rows = [(variant.label, *_costs(found[variant.name])) for variant in variants]
    bare_ns = middle(one for pairs in found.values() for one in pairs[bench.clock]["bare"])
    title = f"{TINY_LAYERS} Linear(16, 16), bare {bare_ns / 1e3 / TINY_LAYERS:.1f} µs a module"
    bench.tables += [*columns((title, "µs/module, wall", "95 %", "processor", "95 %"), rows), ""]
    return bounds, found


def _costs(pairs: paired.Pairs) -> list[str]:
    cells = []
    for clock in paired.CLOCKS:
        cost = difference(pairs[clock]["own"], pairs[clock]["bare"], per=1e3 * TINY_LAYERS)
        cells += [f"{cost.value:.2f}", f"[{cost.low:.2f}, {cost.high:.2f}]"]
    return cells


def _ratio(sides: dict[str, list[float]]) -> Estimate:
    return ratio(sides["own"], sides["bare"])


def _over(own: dict[str, list[float]], floor: dict[str, list[float]]) -> Estimate:
    """Estimate the cost of a variant over that of the floor, each over the bare steps beside it."""
    costs = [np.asarray(sides["own"]) - np.asarray(sides["bare"]) for sides in (own, floor)]
    return cost_ratio(costs[0], costs[1], np.zeros(len(costs[0])))


def gpt(bench: Bench) -> Found:
    """Row 4: steps recorded of a GPT with one line; overhead where its steps take turns with bare ones."""
    steps = bench.scale.gpt_steps
    runs = bench.gpt_runs()
    recorded = [_report(one, "steps") for one in runs["own"]]
    kind = "GPT-2 of transformers" if gpt2.has_transformers() else "GPT-2 in plain torch"
    wanted = -(-GPT_RECORDED * steps // 120)
    text = f"{', '.join(map(str, recorded))} of {steps}, {_report(runs['own'][-1], 'rows')} rows"
    bounds = [Bound(f"4 {kind}: steps recorded", f"≥ {wanted}", text, min(recorded) >= wanted)]
    found = _turns(bench, _gpt_workload(bench), config={})
    bounds.append(_overhead(bench, f"4 {kind}: overhead", 0.5, found))
    return bounds, {"processes": _to_dict(runs), "turns": found}


def _gpt_workload(bench: Bench) -> Callable[[], Workload]:
    one = bench.scale.gpt
    sizes = (one.layers, one.width, one.heads, one.vocabulary, one.batch, one.length)

    def make() -> Workload:
        model, _, step = gpt2.make(sizes)
        return Workload("gpt2", "GPT-2", model, step, {"targets": [{"match": ".+"}]}, is_short=False)

    return make


def _turns(
    bench: Bench,
    make: Callable[[], Workload],
    config: dict[str, Any],
    *,
    manual: bool = False,
    is_shared: bool = True,
    settling: int = 15,
) -> dict[str, Any]:
    scale = bench.scale
    return paired.turns(
        make,
        config,
        manual=manual,
        is_shared=is_shared,
        turn_s=scale.turn_s,
        count=scale.turns,
        settling=min(settling, scale.settling),
        progress=bench.progress,
    )


def _overhead(bench: Bench, subject: str, percent: float, found: dict[str, Any]) -> Bound:
    one = _ratio(found["pairs"][bench.clock])
    value, low, high = (100 * (times - 1) for times in (one.value, one.low, one.high))
    extra = Estimate(value, low, high, one.rounds)
    return at_most(subject, percent, extra, sign=" %")


def loaded(bench: Bench) -> Found:
    """Row 5: the same beside busy processes: each run records as much as a quiet one."""
    scale = bench.scale
    program = [str(PROGRAMS / "gpt2.py"), *scale.gpt.arguments(), "--steps", str(scale.gpt_steps), "--autoprof"]
    quiet = bench.gpt_runs()["own"][-1]
    runs = []
    with load(scale.busy_processes):
        for number in range(scale.loaded_runs):
            bench.progress(f"beside {scale.busy_processes} busy processes: run {number + 1} of {scale.loaded_runs}")
            runs.append(run_program(program, bench.threads))
    pairs = [(_report(one, "steps"), _report(one, "rows")) for one in runs]
    wanted = (_report(quiet, "steps"), _report(quiet, "rows"))
    same = sum(pair[0] >= wanted[0] - 1 and pair[1] == wanted[1] for pair in pairs)
    text = f"{same} of {len(pairs)} runs; fewest {min(pairs)[0]}, {min(rows for _, rows in pairs)}"
    bench.tables += [f"runs beside a load (steps, rows): {'; '.join(f'{one[0]}, {one[1]}' for one in pairs)}", ""]
    subject = f"5 beside {scale.busy_processes} busy processes: steps, rows"
    bound = Bound(subject, f"{wanted[0]}, {wanted[1]} in each", text, same == len(pairs), scale.loaded_runs >= 5)
    return [bound], {"processes": _to_dict({"own": runs})}


def lengths(bench: Bench) -> Found:
    """Row 6: many modules in steps of three lengths, every step, all default sinks."""
    bounds, samples = [], {}
    count = bench.scale.modules
    for length_ms in bench.scale.lengths_ms:
        make = partial(paired.timed_chain, count, length_ms)
        config = {"sample": {"budget": None}, "targets": [{"match": r"\d+"}]}
        found = _turns(bench, make, config, is_shared=False)
        bounds.append(
            _overhead(bench, f"6 {count} modules, steps of {length_ms:g} ms: overhead", 50 / length_ms, found)
        )
        samples[f"{length_ms:g} ms"] = found
    return bounds, samples


def demo(bench: Bench) -> Found:
    """Row 7: the demo's workload with its own configuration, all sinks."""
    size = bench.scale.reference
    config = reference(torch.device("cpu"), size).config
    all_sinks = {key: value for key, value in config.items() if key != "sinks"}
    found = _turns(bench, lambda: reference(torch.device("cpu"), size), all_sinks, manual=True, settling=4)
    one = _ratio(found["pairs"][bench.clock])
    return [at_most(f"7 reference workload ({size}), all sinks, over bare", ONE, one, digits=3, sign="")], found


def whole(bench: Bench) -> Found:
    """Row 8: whole processes, from start to exit, and what their reports state."""
    scale = bench.scale
    program = [str(PROGRAMS / "convolutions.py"), str(scale.convolution_steps), str(scale.convolution_size)]
    ours = ["-m", "autoprof", "run", *program]
    convolutions = bench.in_turns("convolutions", program, ours, scale.convolution_runs)
    bounds = []
    cases = {"autoprof run": convolutions, "GPT-2": bench.gpt_runs()}
    for name, runs in cases.items():
        for clock, limit_s in (("processor", 0.8), ("wall", 0.5)):
            sides = [[getattr(one, f"{clock}_s") for one in runs[side]] for side in ("own", "bare")]
            extra = difference(sides[0], sides[1])
            subject = f"8 {name}: {clock}, over bare ({middle(sides[1]):.1f} s)"
            bounds.append(at_most(subject, limit_s, extra, sign=" s"))
        stated = _report(runs["own"][-1], "stated") or ["no overhead"]
        bench.tables += [f"the report of {name} states: {stated[0]}", *(f"  {line}" for line in stated[1:]), ""]
        cost = _report(runs["own"][-1], "cost")
        bounds.append(Bound(f"8 {name}: stated", "start, steps, end", cost or "not all", cost is not None))
    return bounds, {name: _to_dict(runs) for name, runs in cases.items()}


def tails(bench: Bench) -> Found:
    """Row 10: the longest steps of trainings by default on a terminal, beside bare ones."""
    scale = bench.scale
    kinds = {"0.2 ms": (scale.short_steps, 0), "10 ms": (scale.long_steps, LONG_REST_NS)}
    found: dict[str, dict[str, list[Times]]] = {kind: {"bare": [], "autoprof": []} for kind in kinds}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "times.npy")
        for number in range(scale.tail_runs):
            for kind, (steps, rest_ns) in kinds.items():
                bench.progress(f"steps of {kind}: run {number + 1} of {scale.tail_runs}")
                for lane in ("bare", "autoprof") if number % 2 else ("autoprof", "bare"):
                    arguments = ["-m", "benchmarks.always_on.training", "times", "--lane", lane, "--steps", str(steps)]
                    run_on_terminal([*arguments, "--rest-ns", str(rest_ns), "--save", str(path)], bench.threads)
                    found[kind][lane].append(np.load(path))
    figures = {kind: {lane: tail(runs) for lane, runs in lanes.items()} for kind, lanes in found.items()}
    header = ("longest steps, ms", "median", "p99", "p99.99", "longest", "mean", "> +1 ms, a second")
    rows = [
        (f"{kind}, {lane}", *(f"{one[key]:.3f}" for key in ("median", "p99", "p99.99", "max", "mean", "noticed")))
        for kind, lanes in figures.items()
        for lane, one in lanes.items()
    ]
    bench.tables += [*columns(header, rows), ""]
    return _tail_bounds(figures), figures


def tail(runs: Sequence[Times]) -> dict[str, float]:
    """Describe the pooled steps of equal runs, in ms: by the wall clock, and the processor's longest step."""
    wall = np.concatenate([run[0] for run in runs]) / 1e6
    usual = float(np.median(wall))
    quantiles = {f"p{100 * at:g}": float(np.quantile(wall, at)) for at in (0.99, 0.9999)}
    return {
        "steps": len(wall),
        "median": usual,
        **quantiles,
        "max": float(wall.max()),
        "mean": float(wall.mean()),
        "noticed": float((wall > usual + NOTICED_NS / 1e6).sum() / (wall.sum() / 1e3)),
        "processor_max": float(max(run[1].max() for run in runs)) / 1e6,
        "lost_processors": float(sum(run[2].sum() for run in runs)),
    }


def _tail_bounds(figures: dict[str, dict[str, dict[str, float]]]) -> list[Bound]:
    bounds = []
    bare, own = figures["0.2 ms"]["bare"], figures["0.2 ms"]["autoprof"]
    extra_ms = own["processor_max"] - own["median"]
    text = f"{extra_ms:.2f} ms (bare {bare['processor_max'] - bare['median']:.2f} ms)"
    subject = "10 steps of 0.2 ms: longest extra, processor time"
    bounds.append(Bound(subject, f"≤ {EXTRA_NS / 1e6:.0f} ms", text, extra_ms <= EXTRA_NS / 1e6))
    often = own["noticed"] - bare["noticed"]
    bounds.append(Bound("10 steps of 0.2 ms: extras > 1 ms a second", "≤ 2", f"{often:.2f}", often <= 2))
    bare, own = figures["10 ms"]["bare"], figures["10 ms"]["autoprof"]
    ratio_p99, share = own["p99"] / bare["p99"], 100 * (own["mean"] / bare["mean"] - 1)
    bounds.append(Bound("10 steps of 10 ms: p99 over bare", "≤ 1.05", f"{ratio_p99:.3f}", ratio_p99 <= 1.05))
    bounds.append(Bound("10 steps of 10 ms: extra of all the time", "≤ 1 %", f"{share:.2f} %", share <= 1))
    return bounds


def memory(bench: Bench) -> Found:
    """Row 11: resident memory of a long run in which every step is recorded, all default sinks."""
    points = bench.scale.memory_points
    bench.progress(f"memory to step {points[-1]:,}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "memory.json")
        arguments = ["-m", "benchmarks.always_on.training", "memory", "--save", str(path), "--steps"]
        run_program([*arguments, *map(str, points)], bench.threads)
        readings = json.loads(path.read_text(encoding="utf-8"))
    grown = (readings[-1]["rss_bytes"] - readings[0]["rss_bytes"]) / MIB
    text = f"{grown:+.2f} MiB at step {points[-1]:,}"
    is_whole = points[-1] >= 1_000_000
    if not is_whole:
        farther = grown * (1_000_000 - points[0]) / (points[-1] - points[0])
        text += f"; as a line {farther:+.1f} MiB at 1,000,000"
    bound = Bound(f"11 memory from step {points[0]:,}", "≤ 1 MiB", text, grown <= 1, is_whole)
    return [bound], {"readings": readings}


def lines(_bench: Bench) -> Found:
    """Row 12: the lines of the engine, with C."""
    counts = {room: engine_lines(room) for room in ENGINE}
    total = sum(counts.values())
    return [Bound("12 lines of the engine", "≤ 11,500", f"{total:,}", total <= 11_500)], counts


def engine_lines(room: str) -> int:
    """Count the lines of a room's sources."""
    sources = (path for path in (ROOT / "autoprof" / room).rglob("*") if path.suffix in (".py", ".c", ".h", ".pyi"))
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in sources)


class _LastFrame:
    """A sink that counts frames and keeps the last."""

    def __init__(self) -> None:
        self.count = 0
        self.last: StepFrame | None = None

    def write(self, frame: StepFrame) -> None:
        """Keep the frame."""
        self.count += 1
        self.last = frame

    def close(self, summary: Summary) -> None:
        """Do nothing."""


def many(bench: Bench) -> Found:
    """Row 13: rows that are kept within the budget in a model of many modules."""
    scale = bench.scale
    bench.progress(f"{scale.many_modules:,} modules")
    workload, sink = paired.timed_chain(scale.many_modules, 20.0), _LastFrame()
    times = []
    with tempfile.TemporaryDirectory(prefix="autoprof-bench-") as folder, contextlib.redirect_stdout(Discard()):
        config = {"output": folder, "targets": [{"match": r"\d+"}]}
        with autoprof.instrument(workload.model, config, optimizer=workload.optimizer, sinks=[sink]) as session:
            for _ in range(scale.many_steps):
                times.append(-workload.clock())
                workload.step()
                times[-1] += workload.clock()
        overhead = session.summary().overhead
    kept = 0 if sink.last is None else len({span.fqn for span in sink.last.spans if span.fqn is not None})
    step_ms = middle(times) / 1e6
    text = f"{kept} modules, {sink.count} of {scale.many_steps} steps, {100 * overhead:.2f} % (own account)"
    bound = Bound(f"13 {scale.many_modules:,} modules, {step_ms:.0f} ms: kept within 1 %", "stated", text, None)
    return [bound], {"kept": kept, "recorded": sink.count, "overhead": overhead, "step_ms": step_ms}


def _report(process: Process, key: str) -> Any:
    if process.report is None:
        raise RuntimeError("the recorded run left no summary")
    return process.report[key]


def _to_dict(runs: dict[str, list[Process]]) -> dict[str, Any]:
    return {side: [one.to_dict() for one in ones] for side, ones in runs.items()}


ROWS: Final[tuple[tuple[tuple[int, ...], Callable[[Bench], Found]], ...]] = (
    ((1, 2, 3, 9), chain),
    ((4,), gpt),
    ((5,), loaded),
    ((6,), lengths),
    ((7,), demo),
    ((8,), whole),
    ((10,), tails),
    ((11,), memory),
    ((12,), lines),
    ((13,), many),
)
