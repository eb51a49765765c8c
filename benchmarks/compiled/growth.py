"""Does the row of a module that does ten times the work grow, and no other row?"""

from __future__ import annotations

from typing import Any, Final

from . import ten_times
from .case import Build, Case, prepare
from .rows import Frames, least_rows, open_session

STEPS: Final = 40
WARM: Final = 4
GROWN: Final = 0.8
"""The least share of the phase's growth in the row of the module."""
LEAST_MS: Final = 2.0
"""A phase that grows by less is not judged."""
OTHERS: Final = 0.1
OTHERS_MS: Final = 0.4
"""The most that another row may grow, as a share of the phase's growth, or in milliseconds."""
PAIRS: Final = {name: (small, large, path) for name, small, large, path in ten_times.PAIRS}
names = list(PAIRS)
Rows = dict[tuple[str, str], float]


def measure(name: str) -> dict[str, Any]:
    """Train both models of a pair; return how the rows grew."""
    small, large, path = PAIRS[name]
    before, before_ms, reasons = _train(name, small)
    after, after_ms, more = _train(name, large)
    phases: dict[str, Any] = {}
    wrong: list[str] = []
    for at, phase in enumerate(("forward", "backward")):
        grown = after_ms[at] - before_ms[at]
        if grown < LEAST_MS:
            continue
        row = after.get((phase, path), 0.0) - before.get((phase, path), 0.0)
        fused = sum(
            after.get(key, 0.0) - before.get(key, 0.0)
            for key in after.keys() | before.keys()
            if key[0] == phase and _has_share(key[1], path)
        )
        phases[phase] = {"step": grown, "row": row, "fused": fused}
        if row + fused < GROWN * grown:
            wrong.append(f"{path} {phase}: grew by {row + fused:.2f} ms of {grown:.2f} ms")
        for key in sorted(after.keys() | before.keys()):
            other = after.get(key, 0.0) - before.get(key, 0.0)
            if key[0] == phase and _is_beside(key[1], path) and other > max(OTHERS * grown, OTHERS_MS):
                wrong.append(f"{key[1]} {phase}: grew by {other:.2f} ms, {path} by {row:.2f} ms")
    verdict = "not judged" if not phases else "wrong" if wrong else "right"
    return {
        "verdict": verdict, "path": path, "phases": phases, "wrong": wrong, "reasons": [*reasons, *more],
        "note": ten_times.DETAILS[name]["note"],
    }  # fmt: skip


def _has_share(row: str, path: str) -> bool:
    """Return whether a row outside the module is that of a kernel which computes a part of the module as well."""
    around, is_fused, parts = row.removesuffix("]").partition("/[fused: ")
    if not is_fused or _is_inside(around, path):
        return False
    modules = [f"{around}.{part.replace('/', '.')}".removeprefix(".") for part in parts.split(" + ")]
    return any(_is_inside(module, path) or _is_inside(path, module) for module in modules)


def _is_beside(row: str, path: str) -> bool:
    """Return whether a row is that of a module, or of a kernel, that has no part of the grown module."""
    around = row.partition("/[")[0]
    if _is_inside(around, path) or _has_share(row, path):
        return False
    return "/[" in row or not _is_inside(path, row)


def _is_inside(path: str, around: str) -> bool:
    return not around or f"{path}.".startswith(f"{around}.")


def _train(name: str, build: Build) -> tuple[Rows, list[float], list[str]]:
    training, sink = prepare(Case(name, build)), Frames()
    session = open_session(training, sink)
    times = [training.step(at)[1:] for at in range(STEPS)]
    session.close()
    least = [min(phase) for phase in zip(*times[WARM:], strict=True)]
    return least_rows([one for one in sink.frames if one.step > WARM]), least, sink.reasons
