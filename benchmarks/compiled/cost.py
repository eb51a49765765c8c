"""Time recorded and unrecorded steps of one compiled model against bare ones, in blocks that take turns.

Two models differ by some percent, for their tensors lie elsewhere, so all blocks train the same one. A session is
opened before each block that is not bare, and closed after it; the names of the first compilation stay known.
"""

from __future__ import annotations

import gc
from statistics import median
from time import perf_counter_ns
from typing import Any, Final

from . import models, ten_times
from .case import Case, Training, prepare
from .rows import Frames, open_session

ROUNDS: Final = 12
WARM: Final = 6
"""Steps at the begin of a block that do not count: the session decides which rows to record."""
STEPS: Final = 30
KINDS: Final[dict[str, dict[str, Any] | None]] = {
    "bare": None,
    "recorded": {"targets": None},
    "unrecorded": {"targets": None, "sample": {"budget": None, "every": 10_000}},
}
"""The configuration of the session of a block."""
_LARGE: Final = {name: large for name, _, large, _ in ten_times.PAIRS}
CASES: Final = {
    **{name: Case(name, _LARGE[name]) for name in ("mlp_one_block", "sdpa_one_block", "conv_resnet_block")},
    **{case.name: case for case in models.MODELS if case.name in ("resnet18", "unet")},
}
names = list(CASES)


def measure(name: str) -> dict[str, Any]:
    """Train the model in blocks; return the medians and their ratios to the bare step."""
    training = prepare(CASES[name])
    _block(training, KINDS["recorded"])  # compiles
    times: dict[str, list[list[int]]] = {kind: [] for kind in KINDS}
    spans = recorded = 0
    for at in range(ROUNDS):
        kinds = list(KINDS) if at % 2 else list(reversed(KINDS))
        for kind in kinds:
            block, frames = _block(training, KINDS[kind])
            times[kind].append(block)
            counted = [len(frame.spans) for frame in frames if frame.step > WARM]
            if kind == "recorded":
                spans = max(counted, default=0)
            elif kind == "unrecorded":
                recorded += len(counted)
    bare = median(ns for block in times["bare"] for ns in block)
    found: dict[str, Any] = {"verdict": "measured", "bare_ms": bare / 1e6, "spans": spans, "recorded_steps": recorded}
    for kind in ("recorded", "unrecorded"):
        pairs = zip(times[kind], times["bare"], strict=True)
        found[kind] = {
            "ms": median(ns for block in times[kind] for ns in block) / 1e6,
            "ratio": median(median(ours) / median(theirs) for ours, theirs in pairs),
        }
    found["blocks_ms"] = {kind: [median(block) / 1e6 for block in blocks] for kind, blocks in times.items()}
    return found


def _block(training: Training, config: dict[str, Any] | None) -> tuple[list[int], list[Any]]:
    sink = Frames()
    session = None if config is None else open_session(training, sink, **config)
    times = [_time(training, at) for at in range(WARM + STEPS)][WARM:]
    if session is not None:
        session.close()
    return times, sink.frames


def _time(training: Training, at: int) -> int:
    if at == WARM:
        gc.collect()
    began = perf_counter_ns()
    training.step(at)
    return perf_counter_ns() - began
