"""The screen of a program that was killed: a shell beside it sees the end of a pipe and takes the panel away."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import Final

_SHELL: Final = "/bin/sh"
_SCRIPT: Final = """
trap '' INT HUP TERM
while read -r word; do state=$word; done
[ "$state" != shown ] || printf "$0"
"""
"""Remember the last word; when nobody is left who could send another, and the panel is shown, print the argument."""
_STOP_S: Final = 1.0


class Restorer:
    """Tell a waiting shell whether lines are shown on a terminal; without one (no ``/bin/sh``), do nothing.

    It costs a process of about a megabyte that sleeps. No word to it ever waits. ``undo`` is what it prints should
    this process end without another word; loader workers that outlive it hold the pipe open until they end.
    """

    def __init__(self, terminal: int, undo: str) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError, ValueError):
            self._process = subprocess.Popen(
                [_SHELL, "-c", _SCRIPT, undo.replace("\x1b", "\\033")],
                stdin=subprocess.PIPE,
                stdout=terminal,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a signal to the program's group is not for it
            )

    def say(self, shown: bool) -> None:
        """Note whether the lines are shown from now on."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                os.write(self._process.stdin.fileno(), b"shown\n" if shown else b"gone\n")

    def close(self) -> None:
        """Let the shell go."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
