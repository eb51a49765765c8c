"""``python -m benchmarks.rank_scale``: the exchange between ranks for 16 to 16,384 ranks, of which rank 0 is real.

The other ranks are simulated: one process has the store's server and puts their messages there, made by the real code
from drawn steps. Rank 0's exchange reads them over a connection of its own, in its own process, and compares the ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np

from autoprof._ranks import OwnWork, RankComparison, RankPlace, RankRecord, compare_known
from autoprof._ranks.channel import StoreChannel
from autoprof._ranks.exchange import COMPARISON_S, FIRST_MESSAGES, Exchange
from autoprof._ranks.message import MESSAGE_BYTES, MESSAGE_STEPS, Sender, encode, encode_names
from autoprof.frame import Phase

from .machine import describe
from .ports import free_port
from .rank_folders import draw_self_ns, frames_of, layout_of

RESULTS: Final = Path(__file__).resolve().parent / "results" / "rank_scale.json"
SIZES: Final = (16, 128, 1024, 16_384)
STEP_S: Final = 0.1
"""The length of a step for which bytes and shares are stated."""
ROUNDS: Final = 5
SLOW_NS: Final = 10_000_000
"""The excess of the slow rank, which is the last one."""
PREFIX: Final = "autoprof/simulated"


@dataclass
class _Rates:
    """The rates of a sampler that affords every step."""

    affordable_rate: float = 1.0
    agreed_rate: float = 1.0

    def spend(self, ns: int) -> None:
        """Take the cost."""


def record_of(first_step: int) -> RankRecord:
    """Return the steps of one message."""
    layout = layout_of()
    own_ns = draw_self_ns(layout, MESSAGE_STEPS, (first_step,))
    work = OwnWork(MESSAGE_STEPS)
    for frame in frames_of(layout, own_ns, own_ns.sum(axis=1) + SLOW_NS, range(first_step, first_step + MESSAGE_STEPS)):
        work.add(frame)
    return work.record()


def serve(world_size: int, port: int, pipe: Any) -> None:
    """Hold the store, and put a message of each rank there at each request."""
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    store = TCPStore("127.0.0.1", port, None, True, wait_for_workers=False)
    channel = StoreChannel(PrefixStore(PREFIX, store))
    pipe.send("ready")
    serial = 0
    while pipe.recv():
        serial += 1
        record = record_of(1 + MESSAGE_STEPS * serial)
        names = encode_names(record)
        draw = np.random.default_rng(serial)
        key = ("model/blocks.4", Phase.BACKWARD)
        for rank in range(1, world_size):
            rows = {one: (ns * draw.normal(1.0, 0.02)).astype(np.int64) for one, ns in record.rows.items()}
            extra = SLOW_NS if rank == world_size - 1 else 0
            rows[key] = rows[key] + extra
            own = RankRecord(record.steps, record.step_ns, record.own_ns + extra, rows)
            text = encode(Sender(rank, 0, 1), own, serial, 1.0, closing=False)
            channel.put(f"message/{rank}", text)
            if serial == 1:
                channel.put(f"names/{rank}", names)
                channel.join(rank)
        pipe.send("put")


def read(world_size: int, port: int, server: Any, answer: Any) -> None:
    """Run rank 0's exchange against the store; answer with its times and memory."""
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    store = TCPStore("127.0.0.1", port, None, False, wait_for_workers=False)
    channel = StoreChannel(PrefixStore(PREFIX, store))
    now = [0.0]

    def compare(records: dict[int, RankRecord]) -> RankComparison:
        return compare_known(records, world_size)

    place = RankPlace(0, world_size)
    exchange = Exchange(place, _Rates(), lambda session: channel, compare, clock=lambda: now[0])
    for frame_steps in range(1, ROUNDS + 1):
        _add_own_steps(exchange.work, 1 + MESSAGE_STEPS * frame_steps)
    before = _memory("VmRSS")
    rounds = []
    for _ in range(ROUNDS):
        server.send(True)
        server.recv()
        began, used = time.perf_counter(), time.thread_time()
        exchange.exchange()
        rounds.append((time.perf_counter() - began, time.thread_time() - used))
    kept = _memory("VmRSS") - before
    now[0] = COMPARISON_S
    server.send(True)
    server.recv()
    used = time.thread_time()
    exchange.exchange()
    compared = time.thread_time() - used
    server.send(False)
    exchange.messages = FIRST_MESSAGES
    found = exchange.comparison
    answer.send(
        {
            "ranks": world_size,
            "interval_s": exchange.interval_s,
            "first_s": rounds[0][1],
            "wall_s": float(np.median([wall for wall, _ in rounds[1:]])),
            "cpu_s": float(np.median([cpu for _, cpu in rounds[1:]])),
            "comparison_s": compared,
            "kept_bytes": kept,
            "peak_bytes": _memory("VmHWM") - before,
            "slow": [] if found is None else [one.rank for one in found.slow],
            "missing": None if found is None else found.missing,
            "steps": 0 if found is None else found.steps,
        }
    )


def _add_own_steps(work: OwnWork, first_step: int) -> None:
    layout = layout_of()
    own_ns = draw_self_ns(layout, MESSAGE_STEPS, (first_step,))
    for frame in frames_of(layout, own_ns, own_ns.sum(axis=1) + SLOW_NS, range(first_step, first_step + MESSAGE_STEPS)):
        work.add(frame)


def _memory(key: str) -> int:
    """Return a figure of this process's memory in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return 0


def measure(world_size: int) -> dict[str, Any]:
    """Simulate one world size, on two processes."""
    context = get_context("spawn")
    port = free_port()
    here, there = context.Pipe()
    answer, asked = context.Pipe()
    server = context.Process(target=serve, args=(world_size, port, there), daemon=True)
    server.start()
    here.recv()
    reader = context.Process(target=read, args=(world_size, port, here, asked), daemon=True)
    reader.start()
    result: dict[str, Any] = answer.recv()
    reader.join()
    server.join()
    per_step = STEP_S / result["interval_s"]
    bytes_per_step = MESSAGE_BYTES * per_step
    return {
        **result,
        "sent_bytes_per_step": bytes_per_step,
        "received_bytes_per_step": bytes_per_step * (world_size - 1),
    }


def main(arguments: list[str] | None = None) -> int:
    """Print a row for each world size, and write JSON; return 1 where the slow rank is not named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rank_scale", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=list(SIZES), help="world sizes (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help="where to write the JSON")
    options = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    print(f"messages of {MESSAGE_BYTES:,} bytes, steps of {STEP_S * 1000:.0f} ms")
    print(
        "| ranks | interval, s | sent by a rank, B/step | received by rank 0, kB/step "
        "| a round on rank 0, ms of processor | part of rank 0's time | a comparison, s | memory kept, MB | peak, MB |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    found = []
    for world_size in options.ranks:
        one = measure(world_size)
        found.append(one)
        share = one["cpu_s"] / one["interval_s"]
        print(
            f"| {world_size:,} | {one['interval_s']:.0f} | {one['sent_bytes_per_step']:.0f} | "
            f"{one['received_bytes_per_step'] / 1e3:.1f} | {one['cpu_s'] * 1e3:.1f} | {share:.3%} | "
            f"{one['comparison_s']:.2f} | {one['kept_bytes'] / 1e6:.0f} | {one['peak_bytes'] / 1e6:.0f} |",
            flush=True,
        )
    results = {"machine": describe(), "message_bytes": MESSAGE_BYTES, "step_s": STEP_S, "sizes": found}
    options.results.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return int(any(one["slow"] != [one["ranks"] - 1] for one in found))


if __name__ == "__main__":
    raise SystemExit(main())
