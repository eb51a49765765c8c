"""The source of a configuration, for messages that name the file, the line and the key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from ..base.names import shorten, visible
from ..errors import ConfigError

IN_PYTHON: Final = "config"
"""The name in messages of a configuration without a file."""

KeyPath = tuple[str | int, ...]
"""The path to a value: ``("targets", 1, "match")`` is ``targets[1].match``."""

MAX_DEPTH: Final = 50
"""The most levels of nesting: a mapping that contains itself has no end."""


@dataclass(frozen=True, slots=True)
class Source:
    """The file (or ``config``, for one given in Python) and the line of each key.

    All sources compare equal, so that configurations with the same values do.
    """

    where: str = field(default=IN_PYTHON, compare=False)
    lines: Mapping[KeyPath, int] = field(default_factory=dict, compare=False)

    def place(self, key: KeyPath, line: int | None = None) -> str:
        """Return ``file:line: dotted.key`` for a key, without the line if it is unknown."""
        line = line or self.line(key)
        position = f"{self.where}:{line}" if line else self.where
        return f"{position}: {dotted(key)}" if key else position

    def line(self, key: KeyPath) -> int | None:
        """Return the line of the key, or of the nearest key around it that is written."""
        while key not in self.lines:
            if not key:
                return None
            key = key[:-1]
        return self.lines[key]


def dotted(key: KeyPath) -> str:
    """Return a key as text: ``targets[1].phases[0]``."""
    words = (f"[{part}]" if isinstance(part, int) else f".{shorten(visible(part), 60)}" for part in key)
    return "".join(words).removeprefix(".")


@dataclass(frozen=True, slots=True)
class Problem:
    """The problem of a key and the allowed values; ``line`` if it is not the line of the key."""

    key: KeyPath
    text: str
    line: int | None = None


def config_error(source: Source, problems: Iterable[Problem]) -> ConfigError:
    """Return the error that reports the problems together, in the order of their lines."""
    lined = [(problem.line or source.line(problem.key) or 0, problem) for problem in problems]
    lined.sort(key=itemgetter(0))
    return ConfigError([f"{source.place(problem.key, line)}: {problem.text}" for line, problem in lined])
