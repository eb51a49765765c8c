"""Every error a user can meet.

AutoprofError
├── ConfigError      a configuration that cannot be used; lists all of its problems
├── TargetError      a rule that selects nothing in this model
├── SessionError     a session used in a way it does not allow (two on one model, step after close)
├── OutputError      a run folder that cannot be made or written
└── MissingExtra     an optional package that a sink or command needs

A message reads ``where: what is wrong; what is allowed, or the nearest``.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


class AutoprofError(Exception):
    """Base of every error that autoprof raises on purpose, always at set-up and never inside a training step."""


class ConfigError(AutoprofError):
    """Report every problem of one configuration together, one line each."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class TargetError(AutoprofError):
    """Report the rules that select no module of the model."""


class SessionError(AutoprofError):
    """Report a call that the state of the session does not allow; ``session`` is the one in the way, if one is."""

    def __init__(self, message: str, session: Any = None) -> None:
        self.session = session
        super().__init__(message)


class OutputError(AutoprofError):
    """Report a run folder that cannot be made or written."""


class MissingExtra(AutoprofError):
    """Report an optional package that is not installed, with the command that installs it."""


def nearest(word: str, allowed: Iterable[str], n: int = 3) -> str:
    """Phrase the nearest allowed words: ``did you mean 'a' or 'b'?``, or the whole list when none is near."""
    choices = sorted({str(choice) for choice in allowed})
    near = get_close_matches(word, choices, n=n, cutoff=0.6)
    if near:
        return "did you mean " + " or ".join(repr(choice) for choice in near) + "?"
    if not choices:
        return "there is nothing to choose from"
    shown = ", ".join(choices[:16]) + (", …" if len(choices) > 16 else "")
    return f"allowed: {shown}"
