"""A helper process that is no child of the program: a program may wait for all of its children, whatever they are."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from .signals import forget_deferred

_SHELL: Final = "/bin/sh"
_START: Final = 'exec 3<&0; "$@" <&3 3<&- & echo $! >&2'
"""Start a command in the background with this standard input, which a shell would replace; print its process id."""


class DetachedProcess:
    """Start a command with a pipe as its standard input; another process than this one becomes its parent.

    The command is started by a shell, which has ended when this returns. Without ``/bin/sh`` it is a child. Its
    standard error is a pipe of which only the end is read, by which the end of the process is known: it should print
    nothing there. It is in a session of its own: Ctrl-C reaches the program only. Raises ``OSError``.
    """

    def __init__(self, command: Sequence[str], *, stdout: int, environment: Mapping[str, str] | None = None) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._has_ended = False
        detach = os.path.exists(_SHELL)
        process: subprocess.Popen[bytes] = subprocess.Popen(
            [_SHELL, "-c", _START, _SHELL, *command] if detach else command,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stderr is not None
        self.stdin: Final[Any] = process.stdin
        """The writing end of the pipe that is the command's standard input."""
        self._end = process.stderr
        self.pid = process.pid
        """The id of the command's process."""
        if not detach:
            self._child = process
            return
        written = self._end.readline()
        process.wait()
        _hide_end_of_shell()
        if not written.strip().isdigit():  # no process could be started
            self.stdin.close()
            self._end.close()
            raise OSError(f"{_SHELL} has started no process: {written.decode(errors='replace').strip()}")
        self.pid = int(written)

    def wait(self, timeout_s: float) -> bool:
        """Wait until the process has ended; return whether it has."""
        if not self._has_ended and self._wait(timeout_s):
            self._has_ended = True
            self._end.close()
        return self._has_ended

    def _wait(self, timeout_s: float) -> bool:
        if self._child is not None:
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(timeout_s)
            return self._child.returncode is not None
        poll, until = select.poll(), monotonic() + timeout_s  # select() takes no file numbers above 1,023
        poll.register(self._end, select.POLLIN)
        while poll.poll(max(until - monotonic(), 0.0) * 1000):
            if not os.read(self._end.fileno(), 4096):
                with suppress(OSError):  # a child again, where this process is the first of a container
                    os.waitpid(self.pid, 0)
                return True
        return False

    def terminate(self) -> None:
        """Ask the process to end, unless it has ended."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once, unless it has ended."""
        self._send(getattr(signal, "SIGKILL", signal.SIGTERM))

    def _send(self, number: int) -> None:
        if not self.wait(0):
            with suppress(OSError):
                os.kill(self.pid, number)


def _hide_end_of_shell() -> None:
    """Keep the SIGCHLD of a child of ours from the program's handler, unless a child of the program's has ended too."""
    if not hasattr(os, "waitid"):
        return
    ended = None
    with suppress(ChildProcessError):
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        forget_deferred(signal.SIGCHLD)
