"""The state of one rank, in a memory-mapped file of fixed size: it is readable after the process was killed.

The file has a header of integers, and a text (the last state of the training thread). The training thread writes two
integers at each step's end; all else is written by the thread of the flight recorder. The blocks of the file are
allocated when it is made, so a full disk cannot end the training by a signal.
"""

from __future__ import annotations

import json
import mmap
import os
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from time import perf_counter_ns, time_ns
from typing import Any, Final

import numpy as np

from .._process.hosts import host_number
from ..frame import Nanoseconds

FILE: Final = "flight.bin"
"""The file's name, in the folder of a rank."""
FILE_BYTES: Final = 8192
_HEADER_BYTES: Final = 256
TEXT_BYTES: Final = FILE_BYTES - _HEADER_BYTES
"""The most bytes of the text."""
CAPACITY: Final = 1024
"""Steps whose lengths are kept in memory, a power of two."""
_MAGIC: Final = int.from_bytes(b"apfligh2", "little")
# The indices of the header.
(
    _AT_MAGIC, _AT_PROCESS, _AT_PROCESS_START, _AT_HOST, _AT_CLOCK_OFFSET_NS, _AT_STEPS, _AT_ENDED_NS, _AT_BEGAN_NS,
    _AT_STATE, _AT_USUAL_NS, _AT_ALIVE_NS, _AT_TEXT_SERIAL, _AT_TEXT_BYTES,
) = range(13)  # fmt: skip


class State(IntEnum):
    """The state of a rank, as its flight recorder wrote it last."""

    TRAINING = 0
    EXCLUDED = 1
    """In validation, saving or a pause."""
    HANGING = 2
    """The open step does not end."""
    CLOSED = 3
    """The session was closed."""


class StepRing:
    """Write the steps of this rank. ``end_step``, ``exclude`` and ``pause`` are called on the training thread."""

    def __init__(self, buffer: bytearray | mmap.mmap, now_ns: int) -> None:
        self._map = buffer if isinstance(buffer, mmap.mmap) else None
        self._process = os.getpid()
        self._lengths = array("q", bytes(8 * CAPACITY))
        self.began_ns = now_ns
        """The begin of the open step, later by the time excluded since."""
        self.count = 0
        """The number of steps that have ended."""
        self._use(buffer)

    def _use(self, buffer: bytearray | mmap.mmap) -> None:
        self._bytes = memoryview(buffer)
        self._words = self._bytes.cast("q")

    @classmethod
    def create(cls, path: Path) -> StepRing:
        """Make the file and map it. Raises ``OSError`` where that is impossible."""
        with path.open("x+b") as file:
            try:
                file.write(bytes(FILE_BYTES))
                file.flush()
                mapped = mmap.mmap(file.fileno(), FILE_BYTES)
            except BaseException:
                path.unlink()
                raise
        now_ns = perf_counter_ns()
        ring = cls(mapped, now_ns)
        words = ring._words
        words[_AT_PROCESS], words[_AT_PROCESS_START], words[_AT_HOST] = (
            os.getpid(),
            process_start("self"),
            host_number(),
        )
        words[_AT_CLOCK_OFFSET_NS] = time_ns() - now_ns
        words[_AT_ENDED_NS] = words[_AT_BEGAN_NS] = words[_AT_ALIVE_NS] = now_ns
        words[_AT_MAGIC] = _MAGIC
        return ring

    def end_step(self, now_ns: int) -> None:
        """Write a step that ends now."""
        words, count = self._words, self.count
        self._lengths[count % CAPACITY] = now_ns - self.began_ns
        words[_AT_STEPS] = self.count = count + 1
        words[_AT_ENDED_NS] = self.began_ns = now_ns

    def begin_recorded(self, number: int) -> None:
        """Take over the number of a recorded step: the end of some unsampled steps is not seen one by one."""
        if number - 1 != self.count:
            for count in range(self.count, min(number - 1, self.count + CAPACITY)):
                self._lengths[count % CAPACITY] = 0
            self.count = self._words[_AT_STEPS] = number - 1

    def exclude(self, ns: int) -> None:
        """Take time off the open step: a pause, or work of autoprof's own."""
        self.began_ns += ns

    def pause(self, on: bool) -> None:
        """Called at the begin and the end of a stretch that belongs to no step."""
        self._words[_AT_STATE] = State.EXCLUDED if on else State.TRAINING

    # Called on the thread of the flight recorder.

    @property
    def state(self) -> State:
        """The state written last."""
        return State(self._words[_AT_STATE])

    def mark_hang(self, on: bool) -> None:
        """Write that the open step does not end, or that it has ended after all."""
        if self.state in (State.TRAINING, State.HANGING):
            self._words[_AT_STATE] = State.HANGING if on else State.TRAINING

    def lengths(self) -> Nanoseconds:
        """Return the lengths of the last steps, the oldest first."""
        count, lengths = self.count, np.array(self._lengths, dtype=np.int64)
        ordered = np.roll(lengths, -(count % CAPACITY)) if count > CAPACITY else lengths[:count]
        return ordered[ordered > 0]

    def write_state(self, now_ns: int, usual_ns: int, text: Mapping[str, Any]) -> None:
        """Write the state of the training thread at this moment."""
        words, content = self._words, _encode(text)
        words[_AT_BEGAN_NS], words[_AT_USUAL_NS], words[_AT_ALIVE_NS] = self.began_ns, usual_ns, now_ns
        words[_AT_TEXT_SERIAL] += 1  # odd: a reader of a run that goes on waits for the next number
        self._bytes[_HEADER_BYTES : _HEADER_BYTES + len(content)] = content
        words[_AT_TEXT_BYTES] = len(content)
        words[_AT_TEXT_SERIAL] += 1

    def close(self) -> None:
        """Write that the session is closed, and unmap the file. In a fork of the process the file stays as it is."""
        mapped, self._map = self._map, None
        if mapped is None:
            return
        if os.getpid() == self._process:
            self._words[_AT_STATE] = State.CLOSED
        views = self._words, self._bytes
        self._use(bytearray(FILE_BYTES))
        for view in views:
            view.release()
        mapped.close()


def _encode(text: Mapping[str, Any]) -> bytes:
    """Return the text as JSON of at most ``TEXT_BYTES``: without the outer lines of the stack where it is too long."""
    for lines in (30, 6, 0):
        shortened = {**text, "stack": [line[:200] for line in text["stack"][:lines]]}
        content = json.dumps(shortened, ensure_ascii=False).encode("utf-8", "replace")
        if len(content) <= TEXT_BYTES:
            return content
    return b"{}"


def process_start(process: int | str) -> int:
    """Return when a process of this host started, in clock ticks since its boot; 0 where that is unknown."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
            return 0 if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, IndexError, ValueError):
        return 0


@dataclass(frozen=True, slots=True)
class Flight:
    """The content of one file: the steps of a rank, and the last state of its training thread.

    Times of the rank's clock are converted to Unix time by the reading at its start.
    """

    is_running: bool | None
    """Whether the process exists; None on another host."""
    state: State
    steps: int
    """The number of steps that have ended."""
    began_unix_ns: int
    """The begin of the open step."""
    last_unix_ns: int
    """The last sign of life: the end of the last step, or a later write of the state."""
    usual_ns: int
    """The median length of the last steps; 0 where it is unknown."""
    text: Mapping[str, Any]


def read_flight(path: Path) -> Flight:
    """Read a rank's file, also while it is written. Raises ``OSError``, or ``ValueError`` for another content."""
    for _ in range(3):
        content = path.read_bytes()
        if len(content) != FILE_BYTES:
            raise ValueError(f"{path}: it has {len(content)} bytes and not {FILE_BYTES}")
        words = array("q", content)
        is_whole = words[_AT_TEXT_SERIAL] % 2 == 0
        if is_whole:
            break
    if words[_AT_MAGIC] != _MAGIC:
        raise ValueError(f"{path}: it is no flight recorder's file of this version")
    size, text = words[_AT_TEXT_BYTES], {}
    if is_whole and 0 < size <= TEXT_BYTES:
        text = json.loads(content[_HEADER_BYTES : _HEADER_BYTES + size].decode("utf-8", "replace"))
    if not isinstance(text, dict) or not 0 <= words[_AT_STATE] < len(State):
        raise ValueError(f"{path}: its header is damaged")
    offset_ns = words[_AT_CLOCK_OFFSET_NS]
    return Flight(
        is_running=_is_running(words),
        state=State(words[_AT_STATE]),
        steps=words[_AT_STEPS],
        began_unix_ns=max(words[_AT_BEGAN_NS], words[_AT_ENDED_NS]) + offset_ns,
        last_unix_ns=max(words[_AT_ALIVE_NS], words[_AT_ENDED_NS]) + offset_ns,
        usual_ns=words[_AT_USUAL_NS],
        text=text,
    )


def _is_running(words: array[int]) -> bool | None:
    if words[_AT_HOST] != host_number() or not words[_AT_PROCESS_START]:
        return None
    return process_start(words[_AT_PROCESS]) == words[_AT_PROCESS_START]
