"""The report of ``detail: shapes``: the calls of a name, the time of one call, and the shapes of its tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .._core.units import count, format_count, format_ms
from ..frame import MODULE_PHASES, NOT_MEASURED, NamedShape, StepFrame
from ..summary import Row, Shapes, Summary
from .text import crop, safe, wrap


def phrase_shapes(shapes: Iterable[NamedShape]) -> str:
    """Phrase shapes: ``rgb [1,4,3,256,256], spike [1,4,5,256,256]``."""
    # Tensors shown of one set.
    most = 12
    every = list(shapes)
    texts = [f"{one.name} {_sizes(one)}" if one.name else _sizes(one) for one in every[:most]]
    if len(every) > most:
        texts.append(f"and {count(len(every) - most, 'more tensor')}")
    return ", ".join(texts) or "no tensor"


def _sizes(one: NamedShape) -> str:
    return f"[{','.join('?' if size == NOT_MEASURED else str(size) for size in one.shape)}]"


def render_shape_changes(frame: StepFrame) -> list[str]:
    """Return a line for each set of shapes that was first seen in this step."""
    fqns: dict[tuple[str, str], list[str]] = {}
    for one in frame.shapes:
        text = f"{phrase_shapes(one.inputs)} -> {phrase_shapes(one.outputs)}"
        fqns.setdefault((one.name, text), []).append(one.fqn)
    return [
        safe(f"shapes {name} ({of[0] if len(of) == 1 else f'{len(of)} modules'}): {text}")
        for (name, text), of in fqns.items()
    ]


def render_shapes(summary: Summary, width: int) -> list[str]:
    """Return modules, calls, time of one call and shapes of each name with ``detail: shapes``, longest name first."""
    names: dict[str, list[Shapes]] = {}
    for one in summary.shapes:
        names.setdefault(one.name, []).append(one)
    if not names:
        return []
    lines = ["in detail   calls and times per recorded step; shapes as first seen"]
    for name in dict.fromkeys([*(row.name for row in summary.rows), *names]):
        if name in names:
            lines += _name(name, names[name], [row for row in summary.rows if row.name == name], summary, width)
    return [crop(safe(line), width).rstrip() for line in lines]


def _name(name: str, sets: list[Shapes], rows: list[Row], summary: Summary, width: int) -> Iterator[str]:
    # Different sets of shapes shown of one name; `summary.json` has all.
    most = 4
    modules = len({fqn for one in sets for fqn in one.fqns})
    yield f"{name}: {modules} {'module' if modules == 1 else 'modules'}"
    for phase in MODULE_PHASES:
        for row in rows:
            if row.phase is phase and row.calls:
                calls = format_count(row.calls / max(summary.steps, 1))
                limit_ns = summary.clock_limit_ns
                total = format_ms(row.total_ns / max(summary.steps, 1), row.calls / max(summary.steps, 1) * limit_ns)
                one = format_ms(row.total_ns / row.calls, limit_ns)
                word = "call " if calls == "1" else "calls"
                yield f"  {phase.value:<10}{calls:>6} {word}{total:>12} in all{one:>12} a call"
    for shapes in sets[:most]:
        if len(sets) > 1:
            yield f"  first seen in step {shapes.step}"
        yield from wrap("  in", phrase_shapes(shapes.inputs), width)
        yield from wrap("  out", phrase_shapes(shapes.outputs), width)
    if len(sets) > most:
        yield f"  and {len(sets) - most} more sets of shapes"
