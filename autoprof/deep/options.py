"""What a deep capture is asked for, and what its files are called."""

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
MOST_STEPS: Final = 100
"""More steps than that are a trace that nobody opens."""
MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class FileNames:
    """What the files of a capture are called; ``{stem}`` and ``{rank}`` are put in."""

    trace: str = "{stem}_rank{rank}_trace.json"
    tables: str = "{stem}_rank{rank}_tables.txt"
    time: str = "{stem}_rank{rank}_layer_time.png"
    memory: str = "{stem}_rank{rank}_layer_memory.png"
    memory_text: str = "{stem}_rank{rank}_layer_memory.txt"
    snapshot: str = "{stem}_rank{rank}_memory_snapshot.pickle"


@dataclass(frozen=True, slots=True)
class DeepOptions:
    """What is recorded, and what is made of it."""

    activities: tuple[str, ...] = ()
    """``cpu``, ``cuda``, …; empty is all that there are."""
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
    """Check what a user asks for. Raises ``SessionError``."""
    for name, value, most in (("max_steps", max_steps, MOST_STEPS), ("max_mib", max_mib, 1 << 20)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise SessionError(f"deep_capture: {name} is {value!r}; allowed: a whole number from 1 to {most}")
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
    """Return patterns of names with expressions, or of expressions alone. Raises ``SessionError``."""
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
    """Return the stem, with a number behind it where a capture of that name is there already."""
    for number in range(1, 10_000):
        one = stem if number == 1 else f"{stem}-{number}"
        taken = (names.trace, names.tables, names.time, names.memory_text)
        if not any((folder / name.format(stem=one, rank=rank)).exists() for name in taken):
            return one
    return stem


def clean_stem(prefix: str, what: str) -> str:
    """Return the beginning of the files' names."""
    return file_name(f"{prefix}_{what}" if prefix and what else prefix or what)


def _activities(given: Iterable[Any] | None) -> tuple[str, ...]:
    found = []
    for one in () if given is None else (given,) if isinstance(given, str) else given:
        word = str(getattr(one, "name", one)).lower()
        if word not in ACTIVITIES:
            raise SessionError(f"deep_capture: activities: {word!r} is unknown; allowed: {', '.join(ACTIVITIES)}")
        found.append(word)
    return tuple(dict.fromkeys(found))
