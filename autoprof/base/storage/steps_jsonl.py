"""The codec of ``steps.jsonl``: one step as one line of JSON, read back exactly.

The top level holds the keys for people and tools: ``step``, ``step_time_s``, ``throughput``, ``phases_ms``, ``memory``,
and every logged scalar (``loss``, ``lr``, …). The names of the spans are written with the first step that has them
(``layout``) and referred to by ``layout_id`` from then on. Their times are in a block of ``spans.bin``; ``spans_at`` is
the offset of the block and the step's row in it. JSON has neither NaN nor infinity: such a scalar is null, and
``not_finite`` holds its text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import isfinite, nan
from operator import index
from typing import Any, Final

from ..frame import Layout, Nanoseconds, Phase, StepFrame
from ..stats.unit_rates import LogPeriods, UnitsSinceLog
from ..units import NS_PER_MS, NS_PER_S, UNITS
from .span_blocks import COLUMNS, BlockReader

LAYOUTS: Final = 128
"""Layouts remembered; a run whose steps all differ writes them again instead of using more memory."""

LAYOUT_COLUMNS: Final = ("names", "fqns", "phases", "parents", "calls", "lanes")

RESERVED: Final = frozenset(
    {"step", "start_unix_ns", "step_time_s", "duration_ns", "device_duration_ns", "warmup", "phases_ms"}
    | {"throughput", "throughput_unit", "gap_steps", "gap_ns", "gap_overhead_ns", "gap_scalars"}
    | {"model_ns", "cut", "memory", "overhead_ns", "dropped", "layout", "layout_id"}
    | {"spans_at", "scalars", "not_finite"}
)
"""Keys of a line: a scalar of such a name is below ``scalars``."""

OPTIONAL: Final = {"cut": 0, "dropped": 0, "gap_steps": 0, "gap_ns": 0, "gap_overhead_ns": 0}
"""Integers of a frame that a line has unless they are these."""

_dumps: Final[Callable[[Any], str]] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def columns_of(frame: StepFrame) -> tuple[str, ...]:
    """Return the names of the columns that a frame has."""
    return tuple(name for name in COLUMNS if getattr(frame, name) is not None)


class FrameEncoder:
    """Turn the frames of one file into lines of JSON."""

    def __init__(self) -> None:
        self._layouts: dict[Layout, int] = {}
        self._count = 0
        self._periods = LogPeriods()

    def begin_anew(self) -> None:
        """Write the names of spans again: a new file begins."""
        self._layouts.clear()

    def encode(self, frame: StepFrame, phases_ns: Mapping[Phase, int], spans_at: Sequence[int]) -> str:
        """Return the frame's line, with its newline.

        ``phases_ns`` is the frame's ``phase_ns()``; ``spans_at`` is the place of the times of its spans.
        """
        line: dict[str, Any] = {"step": frame.step, "step_time_s": frame.step_ns / NS_PER_S}
        line |= _scalars(frame.scalars, self._periods.add(frame))
        line |= {name: value for name in OPTIONAL if (value := getattr(frame, name))}
        line["start_unix_ns"] = frame.start_unix_ns
        if frame.device_duration_ns is not None:  # otherwise both are step_time_s
            line |= {"duration_ns": frame.duration_ns, "device_duration_ns": frame.device_duration_ns}
        line["warmup"] = frame.warmup
        line["phases_ms"] = {phase._value_: ns / NS_PER_MS for phase, ns in phases_ns.items()}
        line |= {"memory": frame.memory, "overhead_ns": frame.overhead_ns}
        if frame.gap_scalars:
            line["gap_scalars"] = {name: one if isfinite(one) else None for name, one in frame.gap_scalars.items()}
        if frame.model_ns:
            line["model_ns"] = {phase._value_: ns for phase, ns in frame.model_ns.items()}
        number = self._layouts.get(frame.layout)
        if number is None:
            number = self._remember(frame.layout)
            line["layout"] = {name: getattr(frame.layout, name) for name in LAYOUT_COLUMNS}
        line |= {"layout_id": number, "spans_at": spans_at}
        return f"{_dumps(line)}\n"

    def _remember(self, layout: Layout) -> int:
        if len(self._layouts) >= LAYOUTS:
            self._layouts.clear()
        self._count += 1
        self._layouts[layout] = self._count
        return self._count


def _scalars(scalars: Mapping[str, float], periods: Mapping[str, UnitsSinceLog]) -> dict[str, Any]:
    if not scalars:
        return {}
    not_finite = {name: repr(float(value)) for name, value in scalars.items() if not isfinite(value)}
    known = {**scalars, **dict.fromkeys(not_finite)}
    found: dict[str, Any] = {name: value for name, value in known.items() if name not in RESERVED}
    unit = next((unit for unit in UNITS if found.get(unit) is not None), "")
    throughput = periods[unit].per_second if unit in periods else None
    if throughput is not None:
        found["throughput"] = float(f"{throughput:.6g}")
        if unit != UNITS[0]:
            found["throughput_unit"] = unit
    if reserved := {name: value for name, value in known.items() if name in RESERVED}:
        found["scalars"] = reserved
    return {**found, "not_finite": not_finite} if not_finite else found


BAD_LINE: Final = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""The exceptions of ``FrameDecoder.decode`` for a text that is not a whole frame."""


_NO_COLUMNS: Final = dict.fromkeys(COLUMNS[2:])


class FrameDecoder:
    """Turn the lines of one file back into frames, in order; frames that shared a layout share it again.

    ``blocks`` has the times of their spans.
    """

    def __init__(self, blocks: BlockReader) -> None:
        self._layouts: dict[int, Layout] = {}
        self._blocks = blocks

    def decode(self, line: str | bytes) -> StepFrame:
        """Return the line's frame. Raises one of ``BAD_LINE`` for any other text."""
        data = json.loads(line)
        layout = self._layout(data)
        columns = self._columns(data, layout)
        device_ns, gap_scalars = data.get("device_duration_ns"), data.get("gap_scalars", {})
        # The factor is a float: a damaged line's text, times an integer, would be a long text.
        step_ns = round(data["step_time_s"] * float(NS_PER_S))
        duration_ns = step_ns if device_ns is None else index(data["duration_ns"])
        return StepFrame.of(
            step=index(data["step"]),
            start_unix_ns=index(data["start_unix_ns"]),
            duration_ns=duration_ns,
            device_duration_ns=None if device_ns is None else index(device_ns),
            layout=layout,
            scalars=_read_scalars(data),
            memory={name: index(value) for name, value in data["memory"].items()},
            overhead_ns=index(data["overhead_ns"]),
            warmup=bool(data["warmup"]),
            gap_scalars={**dict.fromkeys(gap_scalars, nan), **_numbers(gap_scalars)},
            model_ns={Phase.add(phase): index(ns) for phase, ns in data.get("model_ns", {}).items()},
            **{name: index(data[name]) if name in data else default for name, default in OPTIONAL.items()},
            **{**_NO_COLUMNS, **columns},
        )

    def _columns(self, data: Mapping[str, Any], layout: Layout) -> dict[str, Nanoseconds]:
        offset, row = data["spans_at"]
        columns = self._blocks.row(index(offset), index(row), layout)
        if not columns.keys() >= {"start_ns", "host_ns"}:
            raise ValueError("a line without the times of its spans")
        return columns

    def _layout(self, data: Mapping[str, Any]) -> Layout:
        number: int = data["layout_id"]
        columns = data.get("layout")
        if columns is None:
            return self._layouts[number]
        layout = read_layout(columns)
        if len(self._layouts) >= LAYOUTS:  # as the encoder does
            self._layouts.clear()
        self._layouts[number] = layout
        return layout


def read_layout(columns: Mapping[str, Any]) -> Layout:
    """Return the layout that a line has. Raises one of ``BAD_LINE`` for any other value."""
    read = {name: tuple(columns[name]) for name in LAYOUT_COLUMNS}
    read["phases"] = tuple(map(Phase.add, read["phases"]))
    layout = Layout(**read)
    if len(set(map(len, read.values()))) > 1 or any(parent >= span for span, parent in enumerate(layout.parents)):
        raise ValueError("the columns of the layout do not fit together")
    return layout


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the values that are numbers: a scalar that is not finite is null."""
    return {name: value for name, value in values.items() if type(value) in (int, float)}


def _read_scalars(data: Mapping[str, Any]) -> dict[str, float]:
    scalars = _numbers({name: value for name, value in data.items() if name not in RESERVED})
    scalars.update(_numbers(data.get("scalars", {})))
    scalars.update((name, float(text)) for name, text in data.get("not_finite", {}).items())
    return scalars
