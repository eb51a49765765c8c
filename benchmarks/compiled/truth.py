"""Compare rows inside compiled graphs with operations of known length, step by step."""

from __future__ import annotations

from statistics import median
from typing import Any, Final

from . import known_lengths
from .case import CLOCK, PHASES, prepare
from .rows import Frames, open_session, own_operations

STEPS: Final = 16
WARM: Final = 4
"""Steps at the beginning that do not count: torch compiles in them."""
MS: Final = 0.4
SHARE: Final = 0.02
"""Largest difference of a row's median to the truth, in milliseconds or as a share of it."""
CALL_MS: Final = 0.1
"""Milliseconds more for each further operation in a row: torch's call of it, and the small kernels around it."""
NOT_JUDGED: Final = {"inference": "calls in evaluation mode are not training: eager models have no rows there either"}
names = [case.name for case in known_lengths.CASES]


def measure(name: str) -> dict[str, Any]:
    """Train a case; return the largest difference of a row, and each wrong row."""
    case = known_lengths.BY_NAME[name]
    cost_ms = known_lengths.call_cost_ms()
    training, sink = prepare(case), Frames()
    session = open_session(training, sink)
    truths, calls = {}, {}
    for at in range(STEPS):
        CLOCK.log.clear()
        training.step(at)
        truths[at + 1] = known_lengths.measured(case, cost_ms)
        calls = known_lengths.calls(case)
        if not case.train:
            session.step()
    session.close()
    steps = [(own_operations(one, set(case.own)), truths[one.step]) for one in sink.frames if one.step > WARM]
    compared, wrong, worst = 0, [], 0.0
    for path in case.truth if steps else ():
        for at, phase in enumerate(PHASES):
            true = median(truth[path][at] for _, truth in steps)
            error = median(found.get(path, [0.0] * 3)[at] - truth[path][at] for found, truth in steps)
            allowed = max(SHARE * true, MS + CALL_MS * max(0, calls[path][at] - 1))
            compared += true > 0
            worst = max(worst, abs(error) / allowed)
            if abs(error) > allowed:
                wrong.append(f"{path or 'the model'} {phase}: {true + error:.2f} ms instead of {true:.2f} ms")
    reason = NOT_JUDGED.get(name, "")
    verdict = "right" if len(steps) > WARM and not wrong else "whole" if sink.reasons else "wrong"
    verdict = "not judged" if reason else verdict
    return {
        "verdict": verdict, "rows": compared, "steps": len(steps), "worst": worst, "wrong": wrong,
        "call_cost_ms": cost_ms, "reasons": sink.reasons, "note": reason or case.note,
    }  # fmt: skip
