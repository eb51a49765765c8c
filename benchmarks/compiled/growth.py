"""Does the row of a module that does ten times the work grow, and no other row?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, Final

from ..table import markdown
from . import ten_times
from .case import Build, Case, prepare
from .rows import Frames, counted, open_session, problems, rows

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
TITLE: Final = "Does the row of a compiled module grow with its work?"
PROCESSES: Final = 1
QUICK: Final = "mlp_gelu"
EXPLAINED: Final = {
    "embedding_tables": "inductor computes the look-ups in LayerNorm's kernel, whose outputs are all LayerNorm's"
}
"""Pairs in which another row has to grow."""
Rows = dict[tuple[str, str], float]


def measure(name: str) -> dict[str, Any]:
    """Train both models of a pair; return how the rows grew.

    Other programs of the machine add time to any row. The module's row has to grow by its share in the least times of
    the steps or in their medians; another row counts as grown only where its least time grew.
    """
    small, large, path = PAIRS[name]
    before, before_steps, reasons = _train(name, small)
    after, after_steps, more = _train(name, large)
    keys = sorted({key for frame in (*before, *after) for key in frame})
    phases: dict[str, Any] = {}
    wrong: list[str] = []
    for at, phase in enumerate(("forward", "backward")):
        found = []
        for typical in (min, median):

            def grown(key: tuple[str, str], typical: Any = typical) -> float:
                return float(
                    typical([one.get(key, 0.0) for one in after]) - typical([one.get(key, 0.0) for one in before])
                )

            step = float(typical([one[at] for one in after_steps]) - typical([one[at] for one in before_steps]))
            fused = sum(grown(key) for key in keys if key[0] == phase and _has_share(key[1], path))
            others = {key[1]: grown(key) for key in keys if key[0] == phase and _is_beside(key[1], path)}
            found.append(({"step": step, "row": grown((phase, path)), "fused": fused}, others))
        if min(growth["step"] for growth, _ in found) < LEAST_MS:
            continue
        best, _ = max(found, key=lambda one: (one[0]["row"] + one[0]["fused"]) / one[0]["step"])
        phases[phase] = best
        if best["row"] + best["fused"] < GROWN * best["step"]:
            wrong.append(f"{path} {phase}: grew by {best['row'] + best['fused']:.2f} ms of {best['step']:.2f} ms")
        for row, ms in found[0][1].items():
            if ms > max(OTHERS * best["step"], OTHERS_MS):
                wrong.append(f"{row} {phase}: grew by {ms:.2f} ms, {path} by {best['row']:.2f} ms")
    verdict = "not judged" if not phases else "wrong" if wrong else "right"
    return {
        "verdict": verdict, "path": path, "phases": phases, "wrong": wrong, "reasons": [*reasons, *more],
        "note": EXPLAINED.get(name) or ten_times.NOTES[name],
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


def _train(name: str, build: Build) -> tuple[list[Rows], list[tuple[float, float]], list[str]]:
    training, sink = prepare(Case(name, build)), Frames()
    session = open_session(training, sink)
    times = [training.step(at)[1:] for at in range(STEPS)]
    session.close()
    return [rows(one) for one in sink.frames if one.step > WARM], times[WARM:], sink.reasons


def page(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the result and the tables."""
    yield f"{counted(results)} pairs right"
    yield "One module does ten times the work. The milliseconds say how much the phase, the module's row, and the rows"
    yield "of kernels that compute parts of it and of another module grew. A phase that grew by less than 2 ms is not"
    yield "judged.\n"
    header = ("pair", "module", "forward: step, row + fused rows", "backward: step, row + fused rows", "verdict", "")
    yield from markdown(header, (_cells(name, one) for name, one in results.items()))
    yield from problems(results)


def _cells(name: str, one: Mapping[str, Any]) -> tuple[str, ...]:
    phases = one.get("phases", {})
    grown = (
        f"{phases[phase]['step']:.1f}, {phases[phase]['row']:.1f} + {phases[phase]['fused']:.1f}"
        if phase in phases
        else "-"
        for phase in ("forward", "backward")
    )
    return name, f"`{one.get('path', '')}`", *grown, one["verdict"], one.get("note", "")
