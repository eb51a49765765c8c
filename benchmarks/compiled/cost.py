"""Time recorded and unrecorded steps of one compiled model against bare ones, in blocks that take turns.

Two models differ by some percent, for their tensors lie elsewhere, so all blocks train the same one. Each compiles it
again, from torch's cache, for a session knows the modules of graphs that are compiled while it is open. A session
records all steps of the block, or the first one alone, which does not count.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from itertools import pairwise
from statistics import median
from time import monotonic, time_ns
from typing import Any, Final

from .. import stats
from ..models import TINY, small_gpt
from ..table import figures
from . import ten_times
from .case import Case, Training, prepare
from .rows import Frames, open_session

ROUNDS: Final = 8
WARM_S: Final = 2
"""Seconds at the begin of a block that do not count: torch compiles, the session decides which rows to record."""
STEPS: Final = 30
EVERY: Final = {"bare": 0, "recorded": 1, "unrecorded": 1_000_000}
"""Which steps of a block a session records, with the default's rows; 0: there is none."""
_LARGE: Final = {name: large for name, _, large, _ in ten_times.PAIRS}
CASES: Final = {name: Case(name, _LARGE[name]) for name in ("mlp_one_block", "sdpa_one_block", "conv_resnet_block")} | {
    "small GPT": Case("small GPT", small_gpt(TINY).build)
}
TITLE: Final = "What does a compiled step cost?"
names = list(CASES)
PROCESSES: Final = 1
QUICK: Final = "small GPT"


def measure(name: str) -> dict[str, Any]:
    """Train the model in blocks; return the medians and their ratios to the bare step."""
    training = prepare(CASES[name])
    _block(training, 1)  # compiles
    times: dict[str, list[float]] = {kind: [] for kind in EVERY}
    spans = 0
    for at in range(ROUNDS):
        for kind in list(EVERY)[:: -1 if at % 2 else 1]:
            steps, found = _block(training, EVERY[kind])
            times[kind].append(median(steps))
            spans = max(spans, found)
    measured: dict[str, Any] = {"verdict": "measured", "bare_ms": median(times["bare"]) / 1e6, "spans": spans}
    for kind in ("recorded", "unrecorded"):
        ratio = stats.ratio(times[kind], times["bare"])
        measured[kind] = {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}
    measured["blocks_ms"] = {kind: [ns / 1e6 for ns in blocks] for kind, blocks in times.items()}
    return measured


def _block(training: Training, every: int) -> tuple[list[int], int]:
    """Return the lengths of a block's steps, and the spans of a recorded one."""
    import torch

    torch._dynamo.reset()
    if not every:
        return _train(training), 0
    sink = Frames()
    session = open_session(training, sink, targets=None, sample={"budget": None, "every": every})
    steps = _train(training)
    session.close()
    if len(sink.frames) > 1 and every > 1:
        raise RuntimeError(f"{len(sink.frames)} steps of a block were recorded, not its first alone")
    return steps, max((len(frame.spans) for frame in sink.frames), default=0)


def _train(training: Training) -> list[int]:
    """Return the lengths of the steps after the first seconds."""
    begun_s, at = monotonic(), 0
    while monotonic() - begun_s < WARM_S:
        training.step(at)
        at += 1
    gc.collect()
    times = [time_ns()]
    for number in range(at, at + STEPS):
        training.step(number)
        times.append(time_ns())
    return [end - begin for begin, end in pairwise(times)]


def page(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the result and the table."""
    done = {name: one for name, one in results.items() if "unrecorded" in one}
    ratios = {
        kind: ", ".join(f"{one[kind]['ratio']:.3f}" for one in done.values()) for kind in ("recorded", "unrecorded")
    }
    yield f"a recorded step takes {ratios['recorded']} of a bare one, an unrecorded one {ratios['unrecorded']}"
    yield (
        "Blocks of bare, recorded and unrecorded steps train the same model in one process, with the default's rows. "
        "Ratios are medians over adjacent blocks, with their 95 % interval.\n"
    )
    rows = []
    for name, one in done.items():
        cells = [
            f"{one[kind]['ratio']:.3f} [{one[kind]['low']:.3f}, {one[kind]['high']:.3f}]"
            for kind in ("recorded", "unrecorded")
        ]
        rows.append((name, f"{one['bare_ms']:.1f} ms", one["spans"], *cells))
    header = ("model", "bare step", "spans in a step", "recorded step / bare step", "unrecorded step / bare step")
    yield from figures("cost", header, rows)
