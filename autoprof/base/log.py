"""The logger ``autoprof``: its warnings reach standard error where the program has set up no logging."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Final

from .text_output import TextOutput


class StandardError(logging.Handler):
    """Write to standard error, as Python does for a logger without handlers, leaving nothing in the program's buffer.

    A text that could not be written would stay there: the last flush of the interpreter fails on it, and from Python
    3.14 on that changes the exit status. A reader that does not take the text now misses it; reports have it.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write the message, unless a handler of the program's has it or ``logging.lastResort`` is off."""
        if sys.stderr is not None and logging.lastResort is not None and not self._has_others():
            with suppress(Exception):  # a full device, a closed stream
                TextOutput(sys.stderr).offer(f"{self.format(record)}\n")

    def _has_others(self) -> bool:
        asked: logging.Logger | None = logger
        while asked is not None:
            if any(handler is not self for handler in asked.handlers):
                return True
            asked = asked.parent if asked.propagate else None
        return False


logger: Final = logging.getLogger("autoprof")
logger.addHandler(StandardError(logging.WARNING))
