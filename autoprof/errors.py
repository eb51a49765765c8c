"""Every exception that autoprof raises on purpose.

A message has the form ``where: the problem with this value; the allowed values, or the nearest one``.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import Any


class AutoprofError(Exception):
    """Base of all errors. They are raised at set-up or by tools, never inside a training step."""


class ConfigError(AutoprofError):
    """All problems of one configuration, one line each."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class TargetError(AutoprofError):
    """Rules that select no module of the model."""


class SessionError(AutoprofError):
    """A call that the state of the session does not allow."""


class OutputError(AutoprofError):
    """A run folder or file that cannot be created, written or read."""


class MissingExtra(AutoprofError):
    """An optional package that is not installed; the message has the command that installs it."""


def import_extra(module: str, extra: str, caller: str, alternative: str = "") -> Any:
    """Import a module of an optional package.

    ``alternative`` is added to the message, for example ", or remove the key wandb from sinks". Raises ``MissingExtra``
    with the command that installs the package.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtra(
            f"{caller}: needs the package {package}, which cannot be imported ({error}); "
            f"install it with: pip install 'torch-autoprof[{extra}]'{alternative}"
        ) from error


def nearest(word: str, allowed: Iterable[str], n: int = 3) -> str:
    """Return a hint with the nearest allowed words, ``did you mean 'a' or 'b'?``, or with all of them."""
    choices = sorted({str(choice) for choice in allowed})
    near = get_close_matches(word, choices, n=n, cutoff=0.6)
    if near:
        return "did you mean " + " or ".join(repr(choice) for choice in near) + "?"
    if not choices:
        return "nothing is allowed here"
    shown = ", ".join(choices[:16]) + (", …" if len(choices) > 16 else "")
    return f"allowed: {shown}"
