"""Time recorded and unrecorded steps of one compiled model against bare ones, in blocks that take turns.

Two models differ by some percent, for their tensors lie elsewhere, so all blocks train the same one. A session is
opened before each block that is not bare, records every second step, and is closed after the block; the names of the
first compilation stay known.
"""

from __future__ import annotations

import gc
from itertools import pairwise
from statistics import median
from time import time_ns
from typing import Any, Final

from .. import stats
from . import models, ten_times
from .case import Case, Training, prepare
from .rows import Frames, open_session

ROUNDS: Final = 10
WARM: Final = 6
"""Steps at the begin of a block that do not count: the session decides which rows to record."""
STEPS: Final = 30
SESSION: Final[dict[str, Any]] = {"targets": None, "sample": {"budget": None, "every": 2}}
"""The default's rows in every second step."""
_LARGE: Final = {name: large for name, _, large, _ in ten_times.PAIRS}
CASES: Final = {
    **{name: Case(name, _LARGE[name]) for name in ("mlp_one_block", "sdpa_one_block", "conv_resnet_block")},
    **{case.name: case for case in models.MODELS if case.name in ("resnet18", "unet")},
}
names = list(CASES)


def measure(name: str) -> dict[str, Any]:
    """Train the model in blocks; return the medians and their ratios to the bare step."""
    training = prepare(CASES[name])
    _session_block(training)  # compiles
    times: dict[str, list[float]] = {"bare": [], "recorded": [], "unrecorded": []}
    spans = 0
    for at in range(ROUNDS):
        bare = [] if at % 2 else [_bare_block(training)]
        recorded, unrecorded, spans = _session_block(training)
        times["bare"].append(median(bare[0] if bare else _bare_block(training)))
        times["recorded"].append(median(recorded))
        times["unrecorded"].append(median(unrecorded))
    found: dict[str, Any] = {"verdict": "measured", "bare_ms": median(times["bare"]) / 1e6, "spans": spans}
    for kind, beside in (("recorded", "bare"), ("unrecorded", "bare"), ("marks", "unrecorded")):
        ratio = stats.ratio(times["recorded" if kind == "marks" else kind], times[beside])
        found[kind] = {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}
    found["blocks_ms"] = {kind: [ns / 1e6 for ns in blocks] for kind, blocks in times.items()}
    return found


def _bare_block(training: Training) -> list[int]:
    return [end - begin for begin, end in _train(training)]


def _session_block(training: Training) -> tuple[list[int], list[int], int]:
    """Return the lengths of the recorded and the unrecorded steps, and the spans of a recorded one."""
    sink = Frames()
    session = open_session(training, sink, **SESSION)
    steps = _train(training)
    session.close()
    middles = [frame.start_unix_ns + frame.duration_ns // 2 for frame in sink.frames]
    recorded: list[int] = []
    unrecorded: list[int] = []
    for begin, end in steps:
        kind = recorded if any(begin <= middle < end for middle in middles) else unrecorded
        kind.append(end - begin)
    return recorded, unrecorded, max((len(frame.spans) for frame in sink.frames), default=0)


def _train(training: Training) -> list[tuple[int, int]]:
    """Return the begin and the end of each step but the first ones."""
    times = [time_ns()]
    for at in range(WARM + STEPS):
        if at == WARM:
            gc.collect()
            times = [time_ns()]
        training.step(at)
        times.append(time_ns())
    return list(pairwise(times))
