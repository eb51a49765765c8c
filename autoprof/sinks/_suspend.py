"""Do something before Ctrl-Z stops the process: the shell then has the terminal, and must find it whole.

A handler of the program's stays. Python runs a handler between two calls into C, so a long one delays the stop.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final

from .._process.signals import has_no_handler, is_pythons

_SUSPEND: Final = getattr(signal, "SIGTSTP", None)


class SuspendHandler:
    """The handler of Ctrl-Z from ``install`` to ``remove``. Forks only stop, as without it."""

    def __init__(self, before: Callable[[], object]) -> None:
        self._before = before
        self._owner = os.getpid()
        self._handler = self._stop

    def install(self) -> None:
        """Install the handler on the main thread, where the program has none."""
        if _SUSPEND is not None and _is_main() and has_no_handler(_SUSPEND):
            signal.signal(_SUSPEND, self._handler)

    def remove(self) -> None:
        """Restore the default; a handler that the program has installed meanwhile stays."""
        if _SUSPEND is None or not _is_main():
            return
        if signal.getsignal(_SUSPEND) is self._handler and is_pythons(_SUSPEND):
            signal.signal(_SUSPEND, signal.SIG_DFL)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self._owner:
            with suppress(Exception):
                self._before()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # the process stops here, and goes on here after ``fg``
        signal.signal(number, self._handler)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
