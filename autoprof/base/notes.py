"""The notes of a run: sentences for its reports, each logged once, and counts of skipped steps."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager

from .failures import contain, describe
from .log import logger


def has_open_bar() -> bool:
    """Return whether a bar of tqdm has begun a line: a line of text would continue it."""
    return bool(getattr(getattr(sys.modules.get("tqdm.std"), "tqdm", None), "_instances", None))


class Notes:
    """Collect the sentences and counts that the reports of one run must mention."""

    def __init__(self, notes: Iterable[str] = ()) -> None:
        self._notes = list(notes)
        self.skipped: Counter[str] = Counter()
        """The number of steps excluded from statistics, by reason."""

    @property
    def all(self) -> tuple[str, ...]:
        """The notes so far, in order."""
        return tuple(self._notes)

    def warn_once(self, note: str) -> None:
        """Keep a note for the reports; log it the first time."""
        if note not in self._notes:
            self._notes.append(note)
            logger.warning(note)

    def add(self, note: str) -> None:
        """Keep a note for the reports alone: nothing is logged, so a step may call this."""
        if note not in self._notes:
            self._notes.append(note)

    def contain(self, where: str) -> AbstractContextManager[None]:
        """Return a ``with`` block whose failure becomes the note ``{where}: {error}``."""
        return contain(lambda error: self.warn_once(f"{where}: {describe(error)}"))
