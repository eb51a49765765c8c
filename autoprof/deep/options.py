"""Options of a deep capture and the names of its files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .._names import file_name
from ..errors import SessionError
from .profile import DEFAULT_PATTERNS, Pattern

ACTIVITIES: Final = ("cpu", "cuda", "xpu", "mtia", "hpu", "privateuse1")
MAX_STEPS: Final = 100
"""Largest ``max_steps``: viewers do not open larger traces."""
MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class FileNames:
    """File names of a capture; ``{stem}`` and ``{rank}`` are replaced."""

    trace: str = "{stem}_rank{rank}_trace.json"
    tables: str = "{stem}_rank{rank}_tables.txt"
    time: str = "{stem}_rank{rank}_layer_time.png"
    memory: str = "{stem}_rank{rank}_layer_memory.png"
    memory_text: str = "{stem}_rank{rank}_layer_memory.txt"
    snapshot: str = "{stem}_rank{rank}_memory_snapshot.pickle"


@dataclass(frozen=True, slots=True)
class DeepOptions:
    """Recorded activities, limits and files of a capture."""

    activities: tuple[str, ...] = ()
    """``cpu``, ``cuda``, …; empty means all that are available."""
    memory: bool = True
    shapes: bool = False
    stacks: bool = False
    snapshot: bool = False
    patterns: tuple[Pattern, ...] = DEFAULT_PATTERNS
    layer_time: bool = True
    layer_memory: bool = True
    tables: bool = True
    max_steps: int = 10
    max_mib: int = 64
    names: FileNames = FileNames()


def make_options(
    *,
    activities: Iterable[Any] | None = None,
    patterns: Mapping[str, str] | Iterable[str] | None = None,
    max_steps: int = 10,
    max_mib: int = 64,
    layer_memory: bool = True,
    memory: bool = True,
    **flags: Any,
) -> DeepOptions:
    """Check the arguments of a capture and make its options. Raises ``SessionError``."""
    for name, value, maximum in (("max_steps", max_steps, MAX_STEPS), ("max_mib", max_mib, 1 << 20)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= maximum:
            raise SessionError(f"deep_capture: {name} is {value!r}; allowed: a whole number from 1 to {maximum}")
    for name, value in {"layer_memory": layer_memory, "memory": memory, **flags}.items():
        if not isinstance(value, bool):
            raise SessionError(f"deep_capture: {name} is {value!r}; allowed: True or False")
    return DeepOptions(
        activities=_activities(activities),
        patterns=DEFAULT_PATTERNS if patterns is None else make_patterns(patterns),
        max_steps=max_steps,
        max_mib=max_mib,
        layer_memory=layer_memory,
        memory=memory or layer_memory,
        **flags,
    )


def make_patterns(given: Mapping[str, str] | Iterable[str]) -> tuple[Pattern, ...]:
    """Make patterns from names with expressions, or from expressions only. Raises ``SessionError``."""
    if isinstance(given, str):
        given = (given,)
    pairs = given.items() if isinstance(given, Mapping) else ((text, text) for text in given)
    made = []
    for name, text in pairs:
        try:
            made.append(Pattern(str(name), re.compile(text)))
        except (re.error, TypeError) as error:
            raise SessionError(
                f"deep_capture: patterns[{name!r}]: {text!r} is no regular expression ({error}); "
                "allowed: one that is found in the names of operators, kernels or layers"
            ) from error
    return tuple(made)


def choose_stem(folder: Path, stem: str, names: FileNames, rank: int) -> str:
    """Return the stem, with a number appended if files of that name exist."""
    for number in range(1, 10_000):
        candidate = stem if number == 1 else f"{stem}-{number}"
        taken = (names.trace, names.tables, names.time, names.memory_text)
        if not any((folder / name.format(stem=candidate, rank=rank)).exists() for name in taken):
            return candidate
    return stem


def clean_stem(prefix: str, steps: str) -> str:
    """Join prefix and steps to the common start of the file names."""
    return file_name(f"{prefix}_{steps}" if prefix and steps else prefix or steps)


def _activities(given: Iterable[Any] | None) -> tuple[str, ...]:
    found = []
    for one in () if given is None else (given,) if isinstance(given, str) else given:
        word = str(getattr(one, "name", one)).lower()
        if word not in ACTIVITIES:
            raise SessionError(f"deep_capture: activities: {word!r} is unknown; allowed: {', '.join(ACTIVITIES)}")
        found.append(word)
    return tuple(dict.fromkeys(found))
