"""The context of a comparison: differences between the runs' ``run.json``, and notes on their records.

Different hardware, versions or settings can cause a difference in time that the model's code does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ...base.process.lifecycle import EXIT
from ...base.summary import ClockName
from ...base.units import count, format_count, format_percent
from .data import Difference, RunNote

_COMPARED: Final = ("devices", "host", "world_size", "versions", "facts.memory_capacity_bytes", "config", "command")
"""Keys of ``run.json``, the most important first. Others (start, end, clock readings) differ between any two runs."""


def differences(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> tuple[Difference, ...]:
    """Return the entries of ``run.json`` that differ between the sides, or between the runs of one side."""
    flat = [[dict(_flatten(info)) for info in side] for side in (a, b)]
    keys = {key for side in flat for info in side for key in info if key not in {"config.output"}}
    found = []
    for key in sorted(keys, key=lambda key: (_rank(key), key)):
        values_a, values_b = (tuple(sorted({info.get(key, "none") for info in side})) for side in flat)
        if values_a != values_b or len(values_a) > 1:
            found.append(Difference(key, values_a, values_b))
    return tuple(found)


def _flatten(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flatten(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        for at, inner in enumerate(value):
            yield from _flatten(inner, f"{path}[{at}]")
    elif _rank(path) < len(_COMPARED):
        yield path, _as_text(value)


def _as_text(value: Any) -> str:
    if value is None or value == [] or value == {}:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(_as_text, value)) if isinstance(value, list) else str(value)


def _rank(path: str) -> int:
    return next(
        (at for at, key in enumerate(_COMPARED) if path == key or path.startswith((f"{key}.", f"{key}["))),
        len(_COMPARED),
    )


def make_notes(
    a: Sequence[RunNote],
    b: Sequence[RunNote],
    clock: ClockName | None,
    margin: float,
    samples: tuple[float | None, float | None],
    *,
    same_work: bool,
) -> Iterator[str]:
    """Yield the notes of a comparison; ``samples`` are those of a step on both sides."""
    if len(a) == len(b) == 1:
        yield "one run a side: the intervals do not include run-to-run variation; give several runs a side (--a, --b)"
    if {run.path for run in a} & {run.path for run in b}:
        yield "the same run is on both sides"
    if clock is None:
        yield (
            "one side has device times and the other has not: their modules and phases cannot be compared; "
            "the whole step is compared in host time"
        )
    if not same_work:
        counts = " and ".join(format_count(number or 0) for number in samples)
        yield f"{counts} samples a step: the steps are not the same work, so a limit applies to the throughput only"
    for side, runs in (("A", a), ("B", b)):
        for run in runs:
            yield from (f"{side}: {run.path} {note}" for note in _run_notes(run))
    overheads = [[run.overhead for run in side if run.overhead is not None] for side in (a, b)]
    if all(overheads):
        mean_a, mean_b = (sum(side) / len(side) for side in overheads)
        if abs(mean_a - mean_b) > margin / 2:
            yield (
                f"autoprof itself took {format_percent(mean_a)} of A and {format_percent(mean_b)} of B: "
                "this may be a part of the difference"
            )


def _run_notes(run: RunNote) -> Iterator[str]:
    if run.ended is None:
        yield "was not closed (killed, or still running): its records so far are compared"
    # The ends of runs that nothing cut short: a session that its program leaves open is closed at the exit.
    elif run.ended not in ("closed", EXIT):
        yield f"ended early ({run.ended}): its records are compared"
    if run.bad_lines:
        yield f"has {count(run.bad_lines, 'unreadable record')}, excluded"
    if run.untimed:
        yield f"has {count(run.untimed, 'step')} without a device time, excluded"
    if run.older:
        yield f"is long: its last {run.steps} recorded steps are compared"
