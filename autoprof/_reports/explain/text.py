"""An explanation for people: causes with place, confidence and experiment, at 80 columns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from ..._core.units import format_bytes, format_ms, format_percent
from ..text import crop, glyphs_for, safe, wrap
from .data import CodePlace, Confidence, Expectation, ExplainedCause, Explanation, State

ROOM: Final = 12
"""Cells of the labels at the left edge."""
HEADLINES: Final[dict[State, str]] = {
    "found": "{} found in {} recorded steps of {}",
    "healthy": "nothing stands out in {1} recorded steps of {2}",
    "unclear": "no cause found in {1} recorded steps of {2}, but much of the step is in no span",
    "too few steps": "too few steps to explain: {1} recorded, 10 needed",
}


def render_explanation(found: Explanation, *, width: int = 80, encoding: str = "utf-8") -> list[str]:
    """Return the explanation as lines; no line is wider than ``width`` cells, at least 80."""
    width = max(width, 80)
    count = len(found.causes)
    causes = f"{count} cause" if count == 1 else f"{count} causes"
    head = HEADLINES[found.state].format(causes, found.steps, format_ms(found.step_ns))
    rule = glyphs_for(encoding).rule * width
    lines = [rule, *wrap("", head, width, 0)]
    for number, cause in enumerate(found.causes, 1):
        lines += ["", *_cause(number, cause, width)]
    if found.doubts:
        lines.append("")
    for doubt in found.doubts:
        lines += wrap("doubt", doubt, width, ROOM)
    if found.unmeasured:
        lines += ["", "not measured"]
    for one in found.unmeasured:
        rules = f" ({', '.join(one.rules)})" if one.rules else ""
        lines += wrap("  -", f"{one.missing}{rules}: {one.remedy}", width, room=4)
    if found.causes:
        lines += ["", "try one change at a time, then:"]
    lines = [crop(safe(line, encoding), width).rstrip() for line in lines]
    if found.causes:  # whole, however long the folder is, for copying
        lines.append(safe(f"  autoprof compare {_shown(found.run)} NEW_RUN", encoding))
    return lines


def _cause(number: int, one: ExplainedCause, width: int) -> Iterator[str]:
    gain = f", up to {format_ms(one.gain_ns)} a step could be saved" if one.gain_ns else ""
    yield from wrap(f"{number}.", f"{one.rule} [{one.severity}]{gain}", width, room=3)
    yield from wrap("cause", one.cause, width, ROOM)
    place = _place(one.place)
    if place:
        yield from wrap("place", place, width, ROOM)
    yield from wrap("confidence", _confidence(one.confidence), width, ROOM)
    yield from wrap("try", one.experiment.advice, width, ROOM)
    yield from wrap("expect", _expect(one.experiment.expect), width, ROOM)


def _place(place: CodePlace) -> str:
    name = place.module or place.name
    parts = [f"{place.phase} phase"] if place.phase else []
    parts += [name if not place.class_name else f"{name} ({place.class_name})"] if name else []
    if place.file:
        inside = f" in {place.function}" if place.function else ""
        parts.append(f"{_shown(place.file)}:{place.line}{inside}")
    parts += [] if place.rank is None else [f"rank {place.rank}"]
    return ", ".join(parts)


def _shown(path: str) -> str:
    try:
        relative = os.path.relpath(path)
    except (OSError, ValueError):  # the directory is gone; another drive
        return path
    return path if relative.startswith(os.pardir) else relative


def _confidence(one: Confidence) -> str:
    if one.share is None:
        return one.level
    spread = ""
    if one.low is not None and one.high is not None:
        spread = f" (95 % interval {format_percent(one.low)} to {format_percent(min(one.high, 1.0))})"
    bound = "" if one.bound is None else f"; the bound is {format_percent(one.bound)}"
    return f"{one.level}; measured: {format_percent(one.share)}{spread}{bound}"


_QUANTITIES: Final = {
    "step_ns": "the mean step",
    "sample_ns": "the time of a sample",
    "wall_ns": "the mean step with excluded time",
    "peak_bytes": "the peak of memory",
    "held_bytes": "memory at the end of the run",
}


def _expect(one: Expectation) -> str:
    show = format_bytes if one.quantity.endswith("_bytes") else format_ms
    quantity = _QUANTITIES[one.quantity]
    if one.now is None:
        return f"{quantity} falls"
    best = "" if one.at_best is None else f", at best to {show(one.at_best)}"
    return f"{quantity} falls from {show(one.now)}{best}"
