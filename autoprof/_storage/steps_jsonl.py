"""The codec of ``steps.jsonl``: one step as one line of JSON, read back exactly.

The top level holds the keys for people and tools: ``step``, ``step_time_s``, ``throughput``, ``phases_ms``, ``memory``,
and every logged scalar (``loss``, ``lr``, …). The names of the spans are written with the first step that has them
(``layout``) and referred to by ``layout_id`` from then on. Their times are columns of integers: in ``spans``, as older
runs and ``TimingLogger`` have them, or in a block of ``spans.bin``; ``spans_at`` is then the offset of the block and
the step's row in it. JSON has neither NaN nor infinity: such a scalar is null, and ``not_finite`` holds its text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import groupby
from math import isfinite
from typing import Any, Final

import numpy as np

from .._stats.self_times import phase_sums
from .._stats.unit_rates import LogPeriods, UnitsSinceLog
from .._units import NS_PER_MS, NS_PER_S, UNITS
from ..frame import Layout, Nanoseconds, Phase, ShapeChange, StepFrame
from ..summary import read_shapes
from .span_blocks import COLUMNS, MAX_NS, MAX_VALUE, BlockReader, least_value

LAYOUTS: Final = 128
"""Layouts remembered; a run whose steps all differ writes them again instead of using more memory."""

RESERVED: Final = frozenset(
    {"step", "start_unix_ns", "step_time_s", "duration_ns", "device_duration_ns", "warmup", "phases_ms"}
    | {"throughput", "throughput_unit", "gap_steps", "gap_ns", "gap_overhead_ns", "gap_scalars"}
    | {"micro_steps", "model_ns", "cut"}
    | {
        "memory",
        "overhead_ns",
        "dropped",
        "layout",
        "layout_id",
        "spans",
        "spans_at",
        "scalars",
        "not_finite",
        "shapes",
    }
)

_dumps: Final[Callable[[Any], str]] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_quoted: Final = lru_cache(maxsize=1024)(_dumps)
"""Names recur in each line."""
_PLAIN: Final[Mapping[type, Callable[[Any], str]]] = {float: repr, int: repr}
"""The types that JSON writes as Python does, but for floats that are not finite."""

_FormatKey = tuple[object, ...]
"""The layout of a line, the columns that it lacks, and the phases of the model's own time."""


class LineFormat:
    """The constant part of the lines of one layout: its id, its phases and the names of its columns."""

    __slots__ = ("columns", "id", "layout", "phases", "sums")

    def __init__(self, frame: StepFrame, number: int) -> None:
        self.id = number
        self.layout = frame.layout
        self.columns = tuple(name for name in COLUMNS if getattr(frame, name) is not None)
        self.sums = phase_sums(frame.layout, tuple(frame.model_ns))
        self.phases = ",".join(f'"{phase}":%.6f' for phase in self.sums.phases)


class FrameEncoder:
    """Turn the frames of one file into lines of JSON."""

    def __init__(self) -> None:
        self._formats: dict[_FormatKey, LineFormat] = {}
        self._count = 0
        self._periods = LogPeriods()

    def skip(self, frame: StepFrame) -> None:
        """Pass over a frame that gets no line: the units logged later cover its time too."""
        self._periods.add(frame)

    def begin_anew(self) -> None:
        """Write the names of spans again: a new file begins."""
        self._formats.clear()

    def encode(self, frame: StepFrame) -> str:
        """Return the frame's line, with its newline and all its times."""
        ((format_, (head,)),) = self.encode_heads([frame])
        spans = ",".join(f'"{name}":[{",".join(map(str, getattr(frame, name).tolist()))}]' for name in format_.columns)
        return f'{head},"spans":{{{spans}}}}}\n'

    def encode_heads(self, frames: Iterable[StepFrame]) -> Iterator[tuple[LineFormat, list[str]]]:
        """Yield the format of each run of frames that share one, with their lines up to the times of the spans."""
        for key, run in groupby(frames, _format_key):
            alike = list(run)
            format_, layout = self._formats.get(key), ""
            if format_ is None:
                format_ = self._remember(key, alike[0])
                layout = f',"layout":{_dumps(_layout_to_dict(format_.layout))}'
            heads = []
            for frame, sums_ns in zip(alike, format_.sums.of(alike), strict=True):
                phases = format_.phases % tuple([ns / NS_PER_MS for ns in sums_ns])
                heads.append(f'{_head(frame, self._periods.add(frame), phases)}{layout},"layout_id":{format_.id}')
                layout = ""
            yield format_, heads

    def _remember(self, key: _FormatKey, frame: StepFrame) -> LineFormat:
        if len(self._formats) >= LAYOUTS:
            self._formats.clear()
        format_ = self._formats[key] = LineFormat(frame, self._count)
        self._count += 1
        return format_


def _format_key(frame: StepFrame) -> _FormatKey:
    memory = (frame.memory_start_bytes is None, frame.memory_bound_bytes is None)
    return (frame.layout, frame.device_ns is None, frame.host_bound_ns is None, *memory, *frame.model_ns)


def _head(frame: StepFrame, periods: Mapping[str, UnitsSinceLog], phases: str) -> str:
    """Return a line up to its layout."""
    device = ""
    if frame.device_duration_ns is not None:  # otherwise both are step_time_s
        device = f'"duration_ns":{frame.duration_ns},"device_duration_ns":{frame.device_duration_ns},'
    dropped = f',"dropped":{frame.dropped}' if frame.dropped else ""
    cut = f'"cut":{frame.cut},' if frame.cut else ""
    micro = "" if frame.micro_steps is None else f'"micro_steps":{frame.micro_steps},'
    return (
        f'{{"step":{frame.step},"step_time_s":{frame.step_ns / NS_PER_S:.9f},'
        f"{_scalars(frame.scalars, periods)}{micro}{cut}"
        f'"start_unix_ns":{frame.start_unix_ns},{device}'
        f'"warmup":{"true" if frame.warmup else "false"},"phases_ms":{{{phases}}},'
        f'"memory":{{{_members(frame.memory)}}},"overhead_ns":{frame.overhead_ns}{dropped}'
        f"{_gap(frame)}{_model_ns(frame)}{_shapes(frame)}"
    )


def _members(values: Mapping[str, float | None]) -> str:
    """Return names and values as they are in an object of JSON, faster than the encoder."""
    return ",".join([f"{_quoted(name)}:{_PLAIN.get(type(value), _dumps)(value)}" for name, value in values.items()])


def _scalars(scalars: Mapping[str, float], periods: Mapping[str, UnitsSinceLog]) -> str:
    if not scalars:
        return ""
    not_finite = {name: repr(float(value)) for name, value in scalars.items() if not isfinite(value)}
    top: Mapping[str, float | None] = {**scalars, **dict.fromkeys(not_finite)} if not_finite else scalars
    reserved = {name: value for name, value in top.items() if name in RESERVED}
    if reserved:
        top = {name: value for name, value in top.items() if name not in RESERVED}
    text = _members(top) + "," if top else ""
    unit = next((unit for unit in UNITS if top.get(unit) is not None), "")
    throughput = periods[unit].per_second if unit in periods else None
    if throughput is not None:
        named = "" if unit == UNITS[0] else f'"throughput_unit":"{unit}",'
        text += f'"throughput":{throughput:.6g},{named}'
    if reserved:
        text += f'"scalars":{{{_members(reserved)}}},'
    if not_finite:
        text += f'"not_finite":{_dumps(not_finite)},'
    return text


def _gap(frame: StepFrame) -> str:
    if not frame.gap_steps:
        return ""
    units = {name: value for name, value in frame.gap_scalars.items() if isfinite(value)}
    return f',"gap_steps":{frame.gap_steps},"gap_ns":{frame.gap_ns},"gap_overhead_ns":{frame.gap_overhead_ns}' + (
        f',"gap_scalars":{{{_members(units)}}}' if units else ""
    )


def _shapes(frame: StepFrame) -> str:
    return f',"shapes":{_dumps(frame.shapes)}' if frame.shapes else ""


def _model_ns(frame: StepFrame) -> str:
    by_phase = {phase._value_: ns for phase, ns in frame.model_ns.items()}
    return f',"model_ns":{{{_members(by_phase)}}}' if by_phase else ""


def _layout_to_dict(layout: Layout) -> dict[str, Any]:
    return {
        "names": layout.names,
        "fqns": layout.fqns,
        "phases": [str(phase) for phase in layout.phases],
        "parents": layout.parents,
        "calls": layout.calls,
        "lanes": layout.lanes,
    }


BAD_LINE: Final = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""The exceptions of ``FrameDecoder.decode`` for a text that is not a whole frame."""


_NO_COLUMNS: Final = dict.fromkeys(COLUMNS[2:])


class FrameDecoder:
    """Turn the lines of one file back into frames, in order; frames that shared a layout share it again.

    ``blocks`` has the times of lines with ``spans_at``.
    """

    def __init__(self, blocks: BlockReader | None = None) -> None:
        self._layouts: dict[int, Layout] = {}
        self._blocks = blocks

    def decode(self, line: str | bytes) -> StepFrame:
        """Return the line's frame. Raises one of ``BAD_LINE`` for any other text."""
        data = json.loads(line)
        layout = self._layout(data)
        columns = self._columns(data, layout)
        device_ns = data.get("device_duration_ns")
        micro_steps = data.get("micro_steps")
        return StepFrame.of(
            step=_whole(data["step"]),
            start_unix_ns=_whole(data["start_unix_ns"], 2**63 - 1),
            duration_ns=duration_of(data),
            device_duration_ns=None if device_ns is None else _whole(device_ns, MAX_NS),
            layout=layout,
            scalars=_read_scalars(data),
            memory={name: _whole(value, MAX_VALUE, -MAX_VALUE) for name, value in data["memory"].items()},
            overhead_ns=_whole(data["overhead_ns"], MAX_NS),
            dropped=_whole(data.get("dropped", 0)),
            warmup=bool(data["warmup"]),
            gap_steps=_whole(data.get("gap_steps", 0)),
            gap_ns=_whole(data.get("gap_ns", 0), MAX_NS),
            gap_overhead_ns=_whole(data.get("gap_overhead_ns", 0), MAX_NS),
            gap_scalars=_numbers(data.get("gap_scalars", {})),
            shapes=tuple(map(_read_shape_change, data.get("shapes", ()))),
            micro_steps=None if micro_steps is None else _whole(micro_steps),
            model_ns={Phase.add(phase): _whole(ns, MAX_NS) for phase, ns in data.get("model_ns", {}).items()},
            cut=_whole(data.get("cut", 0)),
            **{**_NO_COLUMNS, **columns},
        )

    def _columns(self, data: Mapping[str, Any], layout: Layout) -> dict[str, Nanoseconds]:
        columns = self._stored_columns(data, layout)
        if not columns.keys() >= {"start_ns", "host_ns"} or not columns.keys() <= set(COLUMNS):
            raise ValueError("a line without the times of its spans")
        return columns

    def _stored_columns(self, data: Mapping[str, Any], layout: Layout) -> dict[str, Nanoseconds]:
        if "spans" in data:
            return {name: _column(name, values, len(layout)) for name, values in data["spans"].items()}
        if self._blocks is None:
            raise ValueError("a line without its times, and without their file")
        offset, row = data["spans_at"]
        return self._blocks.row(_whole(offset), _whole(row), layout)

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
    layout = Layout(
        names=tuple(columns["names"]),
        fqns=tuple(columns["fqns"]),
        phases=tuple(map(Phase.add, columns["phases"])),
        parents=tuple(columns["parents"]),
        calls=tuple(columns["calls"]),
        lanes=tuple(columns["lanes"]),
    )
    _check_layout(layout)
    return layout


def duration_of(data: Mapping[str, Any]) -> int:
    """Return the length of a record's step by the host's clock. Raises for a value that is none."""
    ns = data.get("duration_ns")
    if ns is None:
        seconds = data["step_time_s"]
        if type(seconds) not in (int, float):  # a billion times a text would be a billion texts
            raise ValueError("step_time_s is not a number")
        ns = round(seconds * NS_PER_S)
    return _whole(ns, MAX_NS)


def _check_layout(layout: Layout) -> None:
    """Raise ``ValueError`` for columns that are no layout: a span that is its own parent would be followed for ever."""
    count = len(layout)
    columns = (layout.fqns, layout.phases, layout.parents, layout.calls, layout.lanes)
    whole = (
        all(len(column) == count for column in columns)
        and all(type(name) is str for name in layout.names)
        and all(fqn is None or type(fqn) is str for fqn in layout.fqns)
        and all(type(parent) is int and -1 <= parent < span for span, parent in enumerate(layout.parents))
        and all(type(number) is int and -2 <= number < 2**31 for number in (*layout.calls, *layout.lanes))
    )
    if not whole:
        raise ValueError("the columns of the layout do not fit together")


def _column(name: str, values: Any, count: int) -> Nanoseconds:
    column = np.asarray(values)
    if column.shape != (count,):
        raise ValueError(f"{column.shape} values for {count} spans")
    if count and column.dtype.kind != "i":
        raise ValueError(f"{name}: holds values that are not integers of 64 bits")
    column = column.astype(np.int64, copy=False)
    if count and (column.max() > MAX_VALUE or column.min() < least_value(name)):
        raise ValueError(f"{name}: holds values out of range")
    return column


def _whole(value: Any, most: int = 2**53, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r:.40} is not an integer from {least} to {most}")
    return value


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the values that are numbers: other keys may be of a later version. Raises for a number above 1.8e308."""
    numbers = {name: value for name, value in values.items() if type(value) in (int, float)}
    if not all(map(isfinite, numbers.values())):
        raise ValueError("a number that JSON does not have")
    return numbers


def _read_shape_change(change: Any) -> ShapeChange:
    name, fqn, inputs, outputs = change
    found = ShapeChange(name, fqn, read_shapes(inputs), read_shapes(outputs))
    for label, sizes in (*found.inputs, *found.outputs):
        if type(label) is not str or not all(type(size) is int for size in sizes):
            raise ValueError("a shape is a name and sizes")
    if type(name) is not str or type(fqn) is not str:
        raise ValueError("a shape belongs to a name and an fqn")
    return found


def _read_scalars(data: Mapping[str, Any]) -> dict[str, float]:
    scalars = _numbers({name: value for name, value in data.items() if name not in RESERVED})
    scalars.update(_numbers(data.get("scalars", {})))
    scalars.update((name, float(text)) for name, text in data.get("not_finite", {}).items())
    return scalars
