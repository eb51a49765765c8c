"""In the process: a thread that waits for requests, where the environment asks for it and Python is older than 3.14."""

from __future__ import annotations

import atexit
import os
import shutil
from contextlib import suppress
from pathlib import Path
from threading import Thread

from ...errors import OutputError
from .exchange import LISTEN, make_folder, process_folder, remove_stale


def begin() -> None:
    """Start the thread. A fork does not have it, and leaves the pipe alone."""
    with suppress(OSError, OutputError):  # the program runs without it
        pid, uid = os.getpid(), os.getuid()
        pipe = process_folder(pid, uid) / LISTEN
        make_folder(pipe.parent, uid)
        remove_stale(uid)
        pipe.unlink(missing_ok=True)  # of a program that has executed itself again
        os.mkfifo(pipe, 0o600)
        atexit.register(_end, pid, pipe)
        Thread(target=_listen, args=(pipe,), name="autoprof-listener", daemon=True).start()


def _listen(pipe: Path) -> None:
    while True:
        try:
            with open(pipe, encoding="utf-8") as file:  # waits for a command
                paths = file.read().split("\n")
        except OSError:
            return
        for path in filter(None, paths):
            from .arming import receive  # nothing else is imported before it is needed

            receive(path)


def _end(pid: int, pipe: Path) -> None:
    if os.getpid() == pid:
        shutil.rmtree(pipe.parent, ignore_errors=True)
