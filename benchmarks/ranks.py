"""``python -m benchmarks.ranks``: the cost on gloo ranks under DDP, bare and recorded steps in turn.

Each rank has two equal models, of which one is recorded with default settings. Blocks of steps of either model follow
one another in an order drawn anew; the session pauses in the bare ones. They begin once the loan of the first steps is
paid back. The thread of the exchange works in both kinds of blocks alike: its processor time is added.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .digest import ROOT
from .ports import free_port
from .stats import Estimate, estimate, ratio
from .table import figures, parser, write, write_raw

ALLOWED: Final = 0.01
"""The bound of the cost, as a fraction of the bare time."""
WIDTH: Final = 512
BATCH: Final = 64
LAYERS: Final = 6


def train(ranks: int, rounds: int, steps: int, settle_s: float, path: Path) -> None:
    """Train as one rank; rank 0 saves the seconds of each block and the session's own figures."""
    import torch
    import torch.distributed as dist

    import autoprof

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)

    def build() -> tuple[Any, Callable[[int], None]]:
        layers = [layer for _ in range(LAYERS) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        x = torch.randn(BATCH, WIDTH)

        def run(count: int) -> None:
            for _ in range(count):
                model(x).sum().backward()
                optimizer.step()
                optimizer.zero_grad()

        return (model, optimizer), run

    _, bare = build()
    (model, optimizer), recorded = build()
    blocks: dict[str, list[float]] = {"bare": [], "recorded": []}
    with tempfile.TemporaryDirectory(prefix="autoprof-bench-") as folder:
        session = autoprof.instrument(model, {"output": folder}, optimizer=optimizer)
        began = time.perf_counter()
        _settle(recorded, began + settle_s)
        draw = random.Random(1)
        for _ in range(rounds):
            for lane in draw.sample(["bare", "recorded"], 2):
                dist.barrier()
                if lane == "bare":
                    with session.pause("bare steps"):
                        blocks[lane].append(_time(bare, steps))
                else:
                    blocks[lane].append(_time(recorded, steps))
        whole_s = time.perf_counter() - began
        dist.barrier()
        session.close()
        assert session.folder is not None
        assert session.rank_folder is not None
        info = json.loads(((session.folder if rank == 0 else session.rank_folder) / "run.json").read_text())
        summary = session.summary()
        found = {
            "blocks": blocks,
            "thread_share": info["exchange"]["thread_ns"] / 1e9 / whole_s,
            "overhead": summary.overhead,
            "recorded_steps": summary.steps,
            "unsampled_steps": summary.unsampled_steps,
        }
        path.with_suffix(f".{rank}").write_text(json.dumps(found))
        dist.barrier()
        dist.destroy_process_group()


def _settle(run: Callable[[int], None], until_s: float) -> None:
    """Train until a time that rank 0 decides on for all."""
    import torch
    import torch.distributed as dist

    done = torch.zeros(1)
    while not done.item():
        run(50)
        done.fill_(time.perf_counter() >= until_s)
        dist.broadcast(done, 0)


def _time(run: Callable[[int], None], steps: int) -> float:
    began = time.perf_counter()
    run(steps)
    return time.perf_counter() - began


def launch(ranks: int, rounds: int, steps: int, settle_s: float) -> list[dict[str, Any]]:
    """Train on several ranks, a process each; return the figures of each rank."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rank")
        given = ["--rounds", str(rounds), "--steps", str(steps), "--settle", str(settle_s), "--save", str(path)]
        command = [sys.executable, "-m", "benchmarks.ranks", "--ranks", str(ranks), *given]
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
        environment = {**os.environ, **place, "OMP_NUM_THREADS": "1", "CI": "1"}
        processes = [
            subprocess.Popen(command, cwd=ROOT, env={**environment, "RANK": str(rank)}, stdout=subprocess.DEVNULL)
            for rank in range(ranks)
        ]
        try:
            codes = [one.wait() for one in processes]
        finally:
            for one in processes:
                one.kill()
        if any(codes):
            raise RuntimeError(f"{ranks} ranks: exit codes {codes}")
        return [json.loads(path.with_suffix(f".{rank}").read_text()) for rank in range(ranks)]


def total_ratio(recorded: Sequence[float], bare: Sequence[float]) -> Estimate:
    """Estimate the ratio of all recorded blocks to all bare ones: a burst is in few blocks, and costs most there."""
    mine, base = (np.asarray(column, dtype=np.float64) for column in (recorded, bare))

    def statistic(drawn: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        return np.asarray(mine[drawn].sum(axis=1) / base[drawn].sum(axis=1))

    return estimate(statistic, len(mine))


def describe_run(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the costs of one run: of all blocks, of the median block, and of the thread, as fractions."""
    blocks = found[0]["blocks"]
    whole, usual = total_ratio(blocks["recorded"], blocks["bare"]), ratio(blocks["recorded"], blocks["bare"])
    thread = max(one["thread_share"] for one in found)
    return {
        "cost": whole.value - 1 + thread,
        "low": whole.low - 1 + thread,
        "high": whole.high - 1 + thread,
        "median_block": usual.value - 1,
        "thread": thread,
        "own_account": max(one["overhead"] for one in found),
        "recorded_steps": [one["recorded_steps"] for one in found],
        "unsampled_steps": [one["unsampled_steps"] for one in found],
        "rounds": whole.rounds,
        "step_ms": float(np.median(blocks["bare"])) * 1e3,
    }


INTRO: Final = """\
# What does it cost on several ranks?

**Result**: {result}

All of autoprof against bare steps in turn, in {rounds} blocks of each, of gloo ranks under DDP with default
settings; at most {allowed:.0%} is allowed. The thread of the exchange works in both kinds of blocks; its processor
time is part of the cost.
"""


def page(runs: Mapping[int, Mapping[str, Any]], steps: int) -> Iterator[str]:
    """Yield the lines of the page."""
    costs = [f"{100 * run['cost']:.2f} % [{100 * run['low']:.2f}, {100 * run['high']:.2f}]" for run in runs.values()]
    result = "; ".join(f"{cost} on {ranks} ranks" for ranks, cost in zip(runs, costs, strict=True))
    rounds = next(iter(runs.values()))["rounds"]
    yield INTRO.format(result=result, rounds=rounds, allowed=ALLOWED)
    header = (
        "ranks",
        "a step",
        "cost (95 %)",
        "median block",
        "by its own clocks",
        "thread of the exchange",
        "recorded",
    )
    rows = []
    for (ranks, run), cost in zip(runs.items(), costs, strict=True):
        recorded, unsampled = run["recorded_steps"][0], run["unsampled_steps"][0]
        rows.append(
            (
                ranks, f"{run['step_ms'] / steps:.1f} ms", cost, f"{run['median_block']:.2%}",
                f"{run['own_account']:.2%}", f"{run['thread']:.2%}", f"{recorded} of {recorded + unsampled} steps",
            )
        )  # fmt: skip
    yield from figures("cost", header, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each number of ranks, print, write. Return 1 where one costs too much."""
    made = parser("benchmarks.ranks", __doc__)
    made.add_argument("--ranks", default="2", help="numbers of ranks, by comma; more than cores measure the scheduler")
    made.add_argument("--rounds", type=int, default=400, help="blocks of each kind")
    made.add_argument("--steps", type=int, default=20, help="steps in a block")
    made.add_argument("--settle", type=float, default=60.0, help="seconds before the first block")
    made.add_argument("--save", type=Path, help=argparse.SUPPRESS)
    given = made.parse_args(arguments)
    if given.save is not None:
        train(int(given.ranks), given.rounds, given.steps, given.settle, given.save)
        return 0
    if given.quick:
        given.ranks, given.rounds, given.steps, given.settle = "2", 2, 2, 1.0
    runs = {}
    for count in map(int, given.ranks.split(",")):
        print(f"{count} ranks", file=sys.stderr, flush=True)
        runs[count] = describe_run(launch(count, given.rounds, given.steps, given.settle))
        write_raw(given, runs)
    write(given, page(runs, given.steps))
    return int(any(run["cost"] > ALLOWED for run in runs.values()))


if __name__ == "__main__":
    sys.exit(main())
