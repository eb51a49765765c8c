"""``python -m benchmarks.deep``: are steps as fast after a deep capture as before it?

Two processes train the same model alternately, a block of steps each, in random order. In the middle one of them
captures some steps. The other never loads a profiler, so effects that outlive a capture show as their difference. On a
GPU this is done twice: with torch's own choice about CUPTI, and with ``TEARDOWN_CUPTI=1``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import torch

from . import machine, stats
from .deep_worker import KINDS
from .options import RESULTS
from .workloads import BUILDERS, CLOCKS

ROOT: Final = Path(__file__).resolve().parent.parent
PATIENCE_S: Final = 300
PHASES: Final = ("before", "during", "after")


@dataclass(frozen=True, slots=True)
class Block:
    """Step times of one process."""

    phase: str
    round: int
    captured: bool
    step_ns: float


class Worker:
    """A process that trains."""

    def __init__(self, options: argparse.Namespace, teardown: str | None) -> None:
        mine, theirs = Pipe()
        self._pipe: Connection[Any, Any] = mine
        arguments = [
            str(theirs.fileno()),
            options.model,
            options.size,
            str(options.threads),
            options.clock,
            options.kind,
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        environment.pop("TEARDOWN_CUPTI", None)
        if teardown is not None:
            environment["TEARDOWN_CUPTI"] = teardown
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.deep_worker", *arguments],
            env=environment, pass_fds=(theirs.fileno(),), stderr=subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()
        self._receive()

    def run(self, steps: int, *, captured: bool = False) -> tuple[float, int, int, list[str]]:
        """Return a step's nanoseconds, the cost of starting and stopping a capture, and its notes."""
        self._pipe.send((captured, steps))
        times, begin_ns, end_ns, notes = self._receive()
        step_ns = times.whole_ns / steps if torch.cuda.is_available() else float(median(times.steps_ns))
        return step_ns, begin_ns, end_ns, notes

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):
            self._pipe.send(None)
        self._process.wait(PATIENCE_S)

    def _receive(self) -> Any:
        if not self._pipe.poll(PATIENCE_S):
            self._process.kill()
            raise TimeoutError("a worker of benchmarks.deep does not answer")
        return self._pipe.recv()


def measure(options: argparse.Namespace, teardown: str | None) -> dict[str, Any]:
    """Run both processes alternately, with a capture in the middle of one."""
    blocks: list[Block] = []
    draw = random.Random(0)
    with ExitStack() as stack:
        bare, captures = Worker(options, teardown), Worker(options, teardown)
        stack.callback(bare.close)
        stack.callback(captures.close)
        for worker in (bare, captures):
            worker.run(options.steps)  # warm-up
        begins, ends, notes = [], [], []
        for phase, number in _plan(options.rounds, options.captures):
            order = [(bare, False), (captures, True)]
            draw.shuffle(order)
            for worker, captured in order:
                capturing = captured and phase == "during"
                step_ns, begin_ns, end_ns, new_notes = worker.run(options.steps, captured=capturing)
                blocks.append(Block(phase, number, captured, step_ns))
                if capturing:
                    begins.append(begin_ns)
                    ends.append(end_ns)
                    notes += new_notes
    return {
        "teardown_cupti": teardown,
        "blocks": [asdict(block) for block in blocks],
        "begin_ns": begins,
        "end_ns": ends,
        "notes": list(dict.fromkeys(notes)),
    }


def _plan(rounds: int, captures: int) -> Iterator[tuple[str, int]]:
    for phase, count in (("before", rounds), ("during", captures), ("after", rounds)):
        for number in range(count):
            yield phase, number


def render(results: dict[str, Any]) -> list[str]:
    """Return the table of a run: steps before, during and after, against the process that never captured."""
    lines = [f"{results['title']}, {results['device']}, {results['clock']} time"]
    for run in results["runs"]:
        word = run["teardown_cupti"]
        lines += ["", "torch's own choice about CUPTI" if word is None else f"TEARDOWN_CUPTI={word}"]
        lines.append(f"{'phase':<10}{'bare':>12}{'capturing':>12}{'ratio':>10}   95 % interval")
        for phase in PHASES:
            bare, mine = _columns(run, phase)
            found = stats.ratio(mine, bare)
            lines.append(
                f"{phase:<10}{median(bare) / 1e6:>9.3f} ms{median(mine) / 1e6:>9.3f} ms{found.value:>10.3f}"
                f"   {_interval(found)}"
            )
        change = _after_against_before(run)
        verdict = "slower" if change.excludes(1.0) and change.value > 1 else "no slow-down is measurable"
        lines.append(f"after / before: {change.value:.3f}   {_interval(change)}: {verdict}")
        lines.append(
            f"beginning took {median(run['begin_ns']) / 1e6:.0f} ms (median; the first "
            f"{run['begin_ns'][0] / 1e6:.0f} ms), ending {median(run['end_ns']) / 1e6:.0f} ms"
        )
        lines += [f"note: {note}" for note in run["notes"]]
    return lines


def _interval(found: stats.Estimate) -> str:
    few = "" if found.rounds >= stats.ENOUGH else " (too few rounds: inconclusive)"
    return f"{found.low:.3f} to {found.high:.3f}{few}"


def _columns(run: dict[str, Any], phase: str) -> tuple[list[float], list[float]]:
    rows = [block for block in run["blocks"] if block["phase"] == phase]
    bare = [block["step_ns"] for block in rows if not block["captured"]]
    return bare, [block["step_ns"] for block in rows if block["captured"]]


def _after_against_before(run: dict[str, Any]) -> stats.Estimate:
    """Return how many times longer a step is after a capture, whatever the two processes differed by before."""
    before, after = (
        np.divide(*(np.asarray(column) for column in reversed(_columns(run, phase)))) for phase in ("before", "after")
    )

    def statistic(rounds: Any) -> Any:
        return np.median(after[rounds], axis=1) / np.median(before[rounds], axis=1)

    return stats.estimate(statistic, min(len(before), len(after)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write. Return 1 where a slow-down shows that the remedy does not take away."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deep", description=__doc__)
    parser.add_argument("--model", choices=tuple(BUILDERS), default="gpt")
    parser.add_argument("--size", choices=("tiny", "small"), default="tiny", help="of the reference workload")
    parser.add_argument("--rounds", type=int, default=40, help="turns before and after (default: %(default)s)")
    parser.add_argument("--captures", type=int, default=8, help="captures in between (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=10, help="steps of a turn (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall", help="cpu: for a busy machine without a GPU")
    parser.add_argument(
        "--kind", choices=KINDS, default="window", help="window: as `deep:` does, figures when the run ends; "
        "block: as `with deep_capture()` does, at once; profiler: torch.profiler alone; figures: a figure, no capture; "
        "nothing: how far two bare processes differ",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    for name, most in (("rounds", 10_000), ("captures", 1000), ("steps", 100)):
        if not 1 <= getattr(options, name) <= most:
            parser.error(f"--{name}: must be from 1 to {most}")
    device = torch.cuda.is_available()
    results = {
        "machine": machine.describe(),
        "title": f"{options.kind}: {options.steps} steps, {options.captures} times, model {options.model}",
        "device": torch.cuda.get_device_name() if device else "CPU",
        "clock": options.clock,
        "runs": [measure(options, teardown) for teardown in ((None, "1") if device else (None,))],
    }
    print("\n".join(render(results)))
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "deep.json"
    path.write_text(json.dumps(results) + "\n", encoding="utf-8")
    print(f"\n{path}")
    last = _after_against_before(results["runs"][-1])
    return int(last.excludes(1.0) and last.value > 1)


if __name__ == "__main__":
    raise SystemExit(main())
