"""Requests of deep captures: by a signal, or a file in the folder of the run."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

from .._core.signals import has_no_handler, installed_handler, is_pythons

REQUEST: Final = "capture.request"
"""The name of the file that asks for a capture, in the folder of the run or of a rank."""
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
        if installed_handler(SIGNAL) == handler and is_pythons(
            SIGNAL
        ):  # a session is closed inside a block that defers signals
            signal.signal(SIGNAL, signal.SIG_DFL)

    def _received(self, number: int, frame: FrameType | None) -> None:
        self._requests.add("the signal SIGUSR2")


class FileTrigger:
    """The files that ask for a capture: ``rank<N>/capture.request``, and for rank 0 also that of the run's folder."""

    def __init__(self, run: Path, rank: int) -> None:
        self._run = run
        self._own = str(run / f"rank{rank}" / REQUEST)
        self._common = str(run / REQUEST) if rank == 0 else None

    def take(self) -> str | None:
        """Return the reason written in this rank's file, which is removed; None where there is no such file."""
        return _take(self._own)

    def take_common(self) -> list[int] | None:
        """Return the ranks named in the file of the run's folder (0 if none is), and remove it; None without a file."""
        text = None if self._common is None else _take(self._common)
        return None if text is None else [int(word) for word in text.replace(",", " ").split() if word.isdigit()] or [0]

    def ask(self, rank: int, reason: str) -> None:
        """Ask another rank for a capture. Raises ``OSError`` where its folder is not here."""
        path = self._run / f"rank{rank}" / REQUEST
        draft = path.with_name(f".{REQUEST}.{os.getpid()}")
        draft.write_text(reason, encoding="utf-8")
        os.replace(draft, path)


def _take(path: str) -> str | None:
    if not os.path.exists(path):  # without the cost of an exception, each second
        return None
    try:
        with open(path, "rb") as file:
            text = file.read(200).decode("utf-8", "replace").strip()
    except OSError:
        return None
    with suppress(OSError):
        os.unlink(path)
    return text
