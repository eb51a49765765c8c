"""Compare rows inside compiled graphs with operations of known length, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, Final

from ..table import markdown
from . import known_lengths
from .case import CLOCK, PHASES, prepare
from .rows import Frames, counted, named_share, open_session, own_operations, problems, share

STEPS: Final = 16
WARM: Final = 4
"""Steps at the beginning that do not count: torch compiles in them."""
MS: Final = 0.4
SHARE: Final = 0.02
"""Largest difference of a row's median to the truth, in milliseconds or as a share of it."""
CALL_MS: Final = 0.1
"""Milliseconds more for each further operation in a row: torch's call of it, and the small kernels around it."""
names = list(known_lengths.BY_NAME)
QUICK: Final = "chain"


def fill(name: str) -> dict[str, Any]:
    """Compile a case without autoprof, so that torch's cache has its graphs."""
    training = prepare(known_lengths.BY_NAME[name])
    for at in range(WARM):
        training.step(at)
    return {}


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
        with_one, without = known_lengths.measured(case, 1.0), known_lengths.measured(case)
        calls = {
            path: [round(one - none) for one, none in zip(with_one[path], without[path], strict=True)]
            for path in case.rows
        }
    session.close()
    owners = {path for paths in case.owners.values() for path in paths}
    steps = [(own_operations(one, owners), truths[one.step]) for one in sink.frames if one.step > WARM]
    compared, wrong, worst = 0, [], 0.0
    for path in case.rows if steps else ():
        for at, phase in enumerate(PHASES):
            true = median(truth[path][at] for _, truth in steps)
            error = median(found.get(path, [0.0] * 3)[at] - truth[path][at] for found, truth in steps)
            allowed = max(SHARE * true, MS + CALL_MS * max(0, calls[path][at] - 1))
            compared += true > 0
            worst = max(worst, abs(error) / allowed)
            if abs(error) > allowed:
                wrong.append(f"{path or 'the model'} {phase}: {true + error:.2f} ms instead of {true:.2f} ms")
    verdict = "right" if len(steps) > WARM and not wrong else "whole" if sink.reasons else "wrong"
    return {
        "verdict": verdict, "rows": compared, "steps": len(steps), "worst": worst, "wrong": wrong,
        "call_cost_ms": cost_ms, "reasons": sink.reasons, "note": case.note,
        "named": named_share(one for one in sink.frames if one.step > WARM),
    }  # fmt: skip


def page(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the result and the tables."""
    yield f"{counted(results)} models right"
    yield (
        "A row is compared with the operations' own clock, step by step; the largest difference of a row's median is "
        "given as a share of the allowed one: 2 % or 0.4 ms, and 0.1 ms for each further operation in the row.\n"
    )
    cells = (
        (
            name,
            one.get("rows", "-"),
            share(one.get("named")),
            share(one.get("worst")),
            one["verdict"],
            one.get("note", ""),
        )
        for name, one in results.items()
    )
    yield from markdown(("model", "rows", "kernel time with names", "largest difference", "verdict", ""), cells)
    yield from problems(results)
