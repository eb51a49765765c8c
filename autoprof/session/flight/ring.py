"""The steps and the state of one rank, in memory; and in a file that stays readable after the process was killed."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from time import perf_counter_ns, time_ns
from typing import Any, Final

import numpy as np

from ...base.frame import Nanoseconds
from ...base.process.hosts import host_number
from ...base.storage.atomic import write_atomic

FILE: Final = "flight.json"
"""The file's name, in the folder of a rank."""
CAPACITY: Final = 1024
"""Steps whose lengths are kept in memory."""


class State(str, Enum):
    """The state of a rank, as its flight recorder wrote it last."""

    TRAINING = "training"
    EXCLUDED = "excluded"
    """In validation, saving or a pause."""
    CLOSED = "closed"
    """The session was closed."""


class StepRing:
    """The lengths of the last steps, and the open step. The training thread changes it, and another one reads it."""

    def __init__(self, now_ns: int) -> None:
        self.state = State.TRAINING
        self.count = 0
        """The number of steps that have ended."""
        self.began_ns = now_ns
        """The begin of the open step, later by the time excluded since."""
        self._lengths = deque[int](maxlen=CAPACITY)

    def end_step(self, now_ns: int) -> None:
        """Add a step that ends now."""
        self._lengths.append(now_ns - self.began_ns)
        self.count += 1
        self.began_ns = now_ns

    def begin_recorded(self, number: int) -> None:
        """Take over the number of a recorded step: the end of some unsampled steps is not seen one by one."""
        self.count = number - 1

    def exclude(self, ns: int) -> None:
        """Take time off the open step: a pause, or work of autoprof's own."""
        self.began_ns += ns

    def pause(self, on: bool) -> None:
        """Called at the begin and the end of a stretch that belongs to no step."""
        self.state = State.EXCLUDED if on else State.TRAINING

    def lengths(self) -> Nanoseconds:
        """Return the lengths of the last steps, the oldest first."""
        return np.array(list(self._lengths), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Flight:
    """The content of one file: the steps of a rank, and the last state of its training thread."""

    is_running: bool | None
    """Whether the process exists; None on another host."""
    state: State
    steps: int
    """The number of steps that had ended at the last sign of life."""
    began_unix_ns: int
    """The begin of the open step."""
    last_unix_ns: int
    """The last sign of life."""
    usual_ns: int
    """The median length of the last steps; 0 where it is unknown."""
    text: Mapping[str, Any]


class FlightFile:
    """Write the state of this rank; each time replaces the file. Raises ``OSError``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process = {"host": host_number(), "process": os.getpid(), "process_start": process_start("self")}
        self._clock_offset_ns = time_ns() - perf_counter_ns()

    def write(self, ring: StepRing, now_ns: int, usual_ns: int, text: Mapping[str, Any]) -> None:
        """Write the steps, and the state of the training thread at this moment."""
        content = {
            **self._process,
            "state": ring.state,
            "steps": ring.count,
            "began_unix_ns": ring.began_ns + self._clock_offset_ns,
            "last_unix_ns": now_ns + self._clock_offset_ns,
            "usual_ns": usual_ns,
            "text": text,
        }
        write_atomic(self._path, json.dumps(content, ensure_ascii=False))


def read_flight(path: Path) -> Flight:
    """Read a rank's file, also while its process runs. Raises ``OSError``, or ``ValueError`` for another content."""
    try:
        values = json.loads(path.read_bytes())
        host, process, start = values.pop("host"), values.pop("process"), values.pop("process_start")
        is_running = None if host != host_number() or not start else process_start(process) == start
        flight = Flight(is_running=is_running, **{**values, "state": State(values["state"])})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: it is no flight recorder's file of this version") from error
    if not isinstance(flight.text, dict):
        raise ValueError(f"{path}: its text is damaged")
    return flight


def process_start(process: int | str) -> int:
    """Return when a process of this host started, in clock ticks since its boot; 0 where that is unknown."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
            return 0 if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, IndexError, ValueError):
        return 0
