"""The last steps of one rank, in a memory-mapped file of fixed size: it is readable after the process was killed.

The file has a header, a text (the last state of the training thread), and a ring of steps with end and length. The
training thread writes a step by three integers; all else is written by the thread of the flight recorder. The blocks of
the file are allocated when it is made, so a full disk cannot end the training by a signal.
"""

from __future__ import annotations

import json
import mmap
import os
from array import array
from collections.abc import Mapping, MutableSequence, Sequence
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
CAPACITY: Final = 1024
"""Steps in the ring, a power of two."""
_MASK: Final = CAPACITY - 1
_WORD: Final = 8
_HEADER_WORDS: Final = 32
TEXT_BYTES: Final = 8192 - _HEADER_WORDS * _WORD
"""The most bytes of the text."""
_RING: Final = 8192 // _WORD
"""The index at which the ring begins."""
FILE_BYTES: Final = (_RING + 2 * CAPACITY) * _WORD
_MAGIC: Final = int.from_bytes(b"apflight", "little")
_VERSION: Final = 1
# The indices of the header.
(
    _AT_MAGIC, _AT_VERSION, _AT_PROCESS, _AT_PROCESS_START, _AT_RANK, _AT_WORLD_SIZE, _AT_UNIX_NS, _AT_CLOCK_NS,
    _AT_STEPS, _AT_BEGAN_NS, _AT_STATE, _AT_USUAL_NS, _AT_ALIVE_NS, _AT_TEXT_SERIAL, _AT_TEXT_BYTES, _AT_HOST,
) = range(16)  # fmt: skip


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
    """Write the last steps of this rank. ``end_step`` and ``exclude`` are called on the training thread."""

    __slots__ = ("_bytes", "_map", "_process", "_words", "began_ns", "count")

    def __init__(self, words: MutableSequence[int], now_ns: int) -> None:
        self._words = words
        self._bytes: Any = None
        self._map: mmap.mmap | None = None
        self._process = os.getpid()
        self.began_ns = now_ns
        """The begin of the open step, later by the time excluded since."""
        self.count = 0
        """The number of steps that have ended."""

    @classmethod
    def create(cls, path: Path, rank: int, world_size: int) -> StepRing:
        """Make the file and map it. Raises ``OSError`` where that is impossible."""
        with path.open("x+b") as file:
            try:
                file.write(bytes(FILE_BYTES))
                file.flush()
                mapped = mmap.mmap(file.fileno(), FILE_BYTES)
            except BaseException:
                path.unlink()
                raise
        whole = memoryview(mapped)
        now_ns = perf_counter_ns()
        ring = cls(whole.cast("q"), now_ns)  # type: ignore[arg-type]
        ring._map, ring._bytes = mapped, whole
        words = ring._words
        words[_AT_VERSION], words[_AT_PROCESS], words[_AT_PROCESS_START] = _VERSION, os.getpid(), process_start("self")
        words[_AT_RANK], words[_AT_WORLD_SIZE], words[_AT_HOST] = rank, world_size, host_number()
        words[_AT_UNIX_NS], words[_AT_CLOCK_NS] = time_ns(), now_ns
        words[_AT_BEGAN_NS] = words[_AT_ALIVE_NS] = now_ns
        words[_AT_MAGIC] = _MAGIC
        return ring

    # Called on the training thread.

    def end_step(self, now_ns: int) -> None:
        """Write a step that ends now."""
        count, words = self.count, self._words
        at = _RING + 2 * (count & _MASK)
        words[at], words[at + 1] = now_ns, now_ns - self.began_ns
        words[_AT_STEPS] = self.count = count + 1
        self.began_ns = now_ns

    def begin_recorded(self, number: int) -> None:
        """Take over the number of a recorded step: the end of some unsampled steps is not seen one by one."""
        if number - 1 != self.count:
            for count in range(self.count, min(number - 1, self.count + CAPACITY)):
                self._words[_RING + 2 * (count & _MASK) + 1] = 0
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
        """Return the lengths of the steps in the ring, the oldest first."""
        count = self.count
        ring = np.array(self._words[_RING + 1 : _RING + 2 * CAPACITY : 2], dtype=np.int64)
        ring = np.concatenate((ring[count & _MASK :], ring[: count & _MASK])) if count > CAPACITY else ring[:count]
        return ring[ring > 0]

    def write_state(self, now_ns: int, usual_ns: int, text: Mapping[str, Any]) -> None:
        """Write the state of the training thread at this moment."""
        words, content = self._words, _encode(text)
        words[_AT_BEGAN_NS], words[_AT_USUAL_NS], words[_AT_ALIVE_NS] = self.began_ns, usual_ns, now_ns
        if self._bytes is not None:
            words[_AT_TEXT_SERIAL] += 1  # odd: a reader of a run that goes on waits for the next number
            begin = _HEADER_WORDS * _WORD
            self._bytes[begin : begin + len(content)] = content
            words[_AT_TEXT_BYTES] = len(content)
            words[_AT_TEXT_SERIAL] += 1

    def close(self) -> None:
        """Write that the session is closed, and unmap the file. In a fork of the process the file stays as it is."""
        if self._map is None:
            return
        if os.getpid() == self._process:
            self._words[_AT_STATE] = State.CLOSED
        words, self._words = self._words, array("q", bytes(FILE_BYTES))
        whole, self._bytes = self._bytes, None
        mapped, self._map = self._map, None
        for view in (words, whole):
            view.release()  # type: ignore[union-attr]
        mapped.close()


def _encode(text: Mapping[str, Any]) -> bytes:
    """Return the text as JSON of at most ``TEXT_BYTES``: without the outer lines of the stack where it is too long."""
    content = json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")
    if len(content) <= TEXT_BYTES:
        return content
    for lines in (16, 6, 0):
        content = json.dumps({**text, "stack": [line[:200] for line in text["stack"][:lines]]}).encode()
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
    """The content of one file: the last steps of a rank, and the last state of its training thread.

    Times of the rank's clock are converted to Unix time by the reading at its start.
    """

    rank: int
    world_size: int
    is_running: bool | None
    """Whether the process exists; None on another host."""
    state: State
    steps: int
    """The number of steps that have ended."""
    began_unix_ns: int
    """The begin of the open step."""
    alive_unix_ns: int
    """The last time at which the flight recorder's thread wrote."""
    usual_ns: int
    """The median length of the last steps; 0 where it is unknown."""
    ended_unix_ns: tuple[int, ...]
    """The ends of the last steps, the oldest first."""
    lengths_ns: tuple[int, ...]
    """The lengths of the same steps."""
    text: Mapping[str, Any]

    @property
    def last_unix_ns(self) -> int:
        """The time of the last sign of life: the end of the last step, or a later write of the state."""
        return max((self.alive_unix_ns, *self.ended_unix_ns[-1:]))


def read_flight(path: Path) -> Flight:
    """Read a rank's file, also while it is written. Raises ``OSError``, or ``ValueError`` for another content."""
    for _ in range(3):
        content = path.read_bytes()
        if len(content) != FILE_BYTES:
            raise ValueError(f"{path}: it has {len(content)} bytes and not {FILE_BYTES}")
        words = array("q", content)
        if words[_AT_TEXT_SERIAL] % 2 == 0:
            break
    if words[_AT_MAGIC] != _MAGIC or words[_AT_VERSION] != _VERSION:
        raise ValueError(f"{path}: it is no flight recorder's file of version {_VERSION}")
    begin, size = _HEADER_WORDS * _WORD, words[_AT_TEXT_BYTES]
    text: Any = {}
    if words[_AT_TEXT_SERIAL] % 2 == 0 and 0 < size <= TEXT_BYTES:
        text = json.loads(content[begin : begin + size].decode("utf-8", "replace"))
    if not isinstance(text, dict) or not 0 <= words[_AT_STATE] < len(State) or words[_AT_STEPS] < 0:
        raise ValueError(f"{path}: its header is damaged")
    offset, steps = words[_AT_UNIX_NS] - words[_AT_CLOCK_NS], words[_AT_STEPS]
    slots = [_RING + 2 * (count & _MASK) for count in range(max(steps - CAPACITY, 0), steps)]
    slots = [at for at in slots if words[at + 1] > 0]
    return Flight(
        rank=words[_AT_RANK],
        world_size=words[_AT_WORLD_SIZE],
        is_running=_is_running(words),
        state=State(words[_AT_STATE]),
        steps=steps,
        began_unix_ns=words[_AT_BEGAN_NS] + offset,
        alive_unix_ns=words[_AT_ALIVE_NS] + offset,
        usual_ns=words[_AT_USUAL_NS],
        ended_unix_ns=tuple(words[at] + offset for at in slots),
        lengths_ns=tuple(words[at + 1] for at in slots),
        text=text,
    )


def _is_running(words: Sequence[int]) -> bool | None:
    if words[_AT_HOST] != host_number() or not words[_AT_PROCESS_START]:
        return None
    return process_start(words[_AT_PROCESS]) == words[_AT_PROCESS_START]
