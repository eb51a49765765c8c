"""Draw the memory picture in a process of its own, at the lowest priority.

A thread would hold the interpreter for as long as matplotlib draws. A process costs the training one small file and one
byte in a pipe for each drawing; requests that arrive during a drawing become one. The process ends when its standard
input ends: at the latest with the training process. It is no child of it, which may wait for all of its children.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np

from .._process.detached import DetachedProcess
from .._reports.figures import encode_figure
from .._reports.memory import MemoryHistory, NameMemory, memory_figure
from .._storage.atomic import write_atomic

PARENT_CHECK_S: Final = 5.0
"""A forked loader worker may hold the pipe open after its parent died."""
_STOP_S: Final = 5.0
_BOOT: Final = (
    "import os, sys, types\n"
    "getattr(os, 'nice', int)(19)\n"
    "os.dup(2)\n"  # the training process sees by it whether this one has ended
    "os.dup2(os.open(os.devnull, os.O_WRONLY), 2)\n"
    "if os.read(0, 1):\n"  # import nothing before the first request
    "    package = sys.modules['autoprof'] = types.ModuleType('autoprof')\n"
    "    package.__path__ = [sys.argv[1]]\n"  # its __init__ imports torch: seconds, and much memory
    "    from autoprof.sinks._redraw import serve\n"
    "    serve(sys.argv[2], sys.argv[3], int(sys.argv[4]))\n"
)


def pack(history: MemoryHistory) -> bytes:
    """Return the history as bytes: a line of JSON, then the columns as they lie in memory."""
    head = {
        "points": len(history.steps),
        "series": list(history.series),
        "names": [asdict(entry) for entry in history.names],
        "stride": history.stride,
        "whole": None if history.whole is None else asdict(history.whole),
        "capacity_bytes": history.capacity_bytes,
    }
    columns = [history.steps, *history.series.values()]
    return json.dumps(head).encode() + b"\n" + b"".join(column.tobytes() for column in columns)


def unpack(data: bytes) -> MemoryHistory:
    """Return the history from the bytes of ``pack``."""
    line, _, rest = data.partition(b"\n")
    head = json.loads(line)
    columns = np.frombuffer(rest, dtype=np.int64).reshape(1 + len(head["series"]), head["points"])
    return MemoryHistory(
        steps=columns[0],
        series=dict(zip(head["series"], columns[1:], strict=True)),
        names=tuple(NameMemory(**entry) for entry in head["names"]),
        stride=head["stride"],
        whole=None if head["whole"] is None else NameMemory(**head["whole"]),
        capacity_bytes=head["capacity_bytes"],
    )


def write_picture(history: MemoryHistory, path: Path) -> None:
    """Draw the history and replace the picture at ``path``."""
    write_atomic(path, encode_figure(memory_figure(history)))


class Redrawer:
    """The drawing process as the training sees it: start it, send it histories, end it."""

    def __init__(self, data: Path, picture: Path) -> None:
        self._data = data
        self._picture = picture
        package = Path(__file__).resolve().parents[1]
        self._process = DetachedProcess(
            [sys.executable, "-c", _BOOT, str(package), str(data.resolve()), str(picture.resolve()), str(os.getpid())],
            stdout=subprocess.DEVNULL,
            environment={**os.environ, "MPLBACKEND": "agg", "CUDA_VISIBLE_DEVICES": ""},
        )
        self._pipe = self._process.stdin
        os.set_blocking(self._pipe.fileno(), False)

    @property
    def pid(self) -> int:
        """The id of the drawing process."""
        return self._process.pid

    def request(self, history: MemoryHistory) -> None:
        """Write a history and request its drawing; never waits. A process that has ended or is busy is ignored."""
        write_atomic(self._data, pack(history))
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._pipe.fileno(), b".")

    def close(self) -> None:
        """End the process and remove its files, so that no late drawing replaces a newer one."""
        self._process.terminate()
        if not self._process.wait(_STOP_S):
            self._process.kill()
            self._process.wait(_STOP_S)
        self._pipe.close()
        self._data.unlink(missing_ok=True)
        for draft in self._picture.parent.glob(f".{self._picture.name}.{self.pid}"):
            draft.unlink(missing_ok=True)


def serve(data: str, picture: str, training: int) -> None:
    """Draw once for all requests that have arrived, until standard input ends or the training process has ended."""
    while True:
        with contextlib.suppress(OSError, ValueError):  # the folder is gone or full: try again at the next request
            write_picture(unpack(Path(data).read_bytes()), Path(picture))
        while not select.select([0], [], [], PARENT_CHECK_S)[0]:
            if not _exists(training):
                return
        if not os.read(0, 4096):
            return


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
