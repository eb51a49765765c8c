"""Requests of deep captures: by a signal, or a file in the folder of a rank."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

from .._core.signals import has_no_handler, installed_handler, is_pythons

REQUEST: Final = "capture.request"
"""The name of the file that asks for a capture, in the folder of a rank."""
MAX_CAPTURES: Final = 3
"""The most captures of a run on each rank; a forgotten script may ask for more."""
SIGNAL: Final = getattr(signal, "SIGUSR2", None)


class CaptureRequests:
    """The pending request of a capture on this rank: one at a time, at most ``MAX_CAPTURES`` in a run."""

    def __init__(self) -> None:
        self._left = MAX_CAPTURES
        self._reason: str | None = None

    def add(self, reason: str) -> bool:
        """Ask for a capture of the next steps; return False where one is pending, or no more is allowed."""
        if self._reason is not None or self._left <= 0:
            return False
        self._reason = reason
        return True

    @property
    def pending(self) -> bool:
        """Whether a request waits for the next recorded step."""
        return self._reason is not None

    def take(self) -> str | None:
        """Return the reason of the pending request, once."""
        reason, self._reason = self._reason, None
        self._left -= reason is not None
        return reason


class SignalTrigger:
    """Ask for a capture on SIGUSR2, where the program has no handler of its own."""

    def __init__(self, requests: CaptureRequests) -> None:
        self._requests = requests
        self._handler: Any = None

    def attach(self) -> None:
        """Install the handler; only the main thread may, and only where the signal would end the process."""
        main = threading.current_thread() is threading.main_thread()
        if SIGNAL is not None and main and has_no_handler(SIGNAL):
            self._handler = self._received
            signal.signal(SIGNAL, self._handler)

    def remove(self) -> None:
        """Remove the handler, unless the program has installed another one meanwhile."""
        handler, self._handler = self._handler, None
        if SIGNAL is None or handler is None or threading.current_thread() is not threading.main_thread():
            return
        # The installed one: a session is closed inside a block that defers signals.
        if installed_handler(SIGNAL) == handler and is_pythons(SIGNAL):
            signal.signal(SIGNAL, signal.SIG_DFL)

    def _received(self, number: int, frame: FrameType | None) -> None:
        self._requests.add("the signal SIGUSR2")


def take_file(folder: Path) -> str | None:
    """Return the request in the file of a rank's folder, which is removed; None where there is none."""
    path = folder / REQUEST
    if not path.exists():
        return None
    with suppress(OSError):
        path.unlink()
    return f"the file {folder.name}/{REQUEST}"
