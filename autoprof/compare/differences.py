"""What two sides of runs say of themselves in ``run.json``: a slower machine is no slower program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from .data import Difference

COMPARED: Final = ("devices", "host", "world_size", "versions", "facts.memory_capacity_bytes", "config", "command")
"""In the order in which they matter. The start, the end and the readings of a clock differ between any two runs."""
LEFT_OUT: Final = frozenset({"config.output"})


def differences(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> tuple[Difference, ...]:
    """Return the entries of which the sides, or the runs of one side, do not have one and the same value."""
    flat = [[dict(_flatten(info)) for info in side] for side in (a, b)]
    keys = {key for side in flat for info in side for key in info if key not in LEFT_OUT}
    found = []
    for key in sorted(keys, key=_order):
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
    elif _rank(path) < len(COMPARED):
        yield path, _phrase(value)


def _phrase(value: Any) -> str:
    if value is None or value == [] or value == {}:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(_phrase, value)) if isinstance(value, list) else str(value)


def _rank(path: str) -> int:
    return next(
        (at for at, key in enumerate(COMPARED) if path == key or path.startswith((f"{key}.", f"{key}["))), len(COMPARED)
    )


def _order(path: str) -> tuple[int, str]:
    return _rank(path), path
