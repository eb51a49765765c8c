"""Count what ``torch.compile`` compiles while a run trains: which function, why again, and how long it took.

Nothing is switched on for it: dynamo says when it begins and ends, and keeps a note of its last compilations
(``torch._dynamo.utils.get_compilation_metrics``), which are read at the end of a step in which it has compiled.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from time import perf_counter_ns
from typing import Any, Final, NamedTuple

from .compiling import around_compiler
from .handle import Handle

FUNCTIONS: Final = 64
"""Functions kept apart."""
REASON: Final = 300
"""Characters kept of a reason."""
_UTILS: Final = "torch._dynamo.utils"


class Compiled(NamedTuple):
    """One compilation as dynamo notes it: ``again`` is 0 for the first of a function, 1 for the next, …"""

    key: str
    function: str
    file: str
    line: int
    again: int
    reason: str
    gave_up: bool


class Function:
    """What became of one function after its first compilation."""

    __slots__ = ("count", "file", "function", "gave_up", "line", "reason")

    def __init__(self) -> None:
        self.function, self.file, self.line = "", "", 0
        self.count = 0
        self.reason = ""
        self.gave_up = False

    def add(self, one: Compiled, recorded: bool) -> None:
        """Take note of one compilation; one in a warm-up step only says what the function is called."""
        if one.function:  # where dynamo gives up, its note has no name
            self.function, self.file, self.line = one.function, one.file, one.line
        if recorded and one.again:
            self.gave_up = self.gave_up or one.gave_up
            self.count += not one.gave_up
            self.reason = one.reason or self.reason


class Compilations:
    """The compilations of one session's recorded steps. Belongs to the training thread."""

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}
        self.ns = 0
        self.steps = 0
        """Recorded steps in which something was compiled."""
        self.recorded_steps = 0
        self.recorded_ns = 0
        self._begun_ns: int | None = None
        self._open_ns = 0
        self._open_count = 0
        self._last: Any = None
        self._handle = around_compiler(self._begin, self._end)

    def _begin(self) -> None:
        if self._begun_ns is None:
            if not self._open_count:
                notes = _notes()
                self._last = notes[-1] if notes else None
            self._begun_ns = perf_counter_ns()

    def _end(self) -> None:
        if self._begun_ns is not None:
            self._open_ns += perf_counter_ns() - self._begun_ns
            self._open_count += 1
            self._begun_ns = None

    def closed(self, length_ns: int, recorded: bool) -> None:
        """Take note that a step has ended; of one that does not count, only the functions' names are kept."""
        if recorded:
            self.recorded_steps += 1
            self.recorded_ns += length_ns
        if not self._open_count:
            return
        for one in self._new():
            kept = self.functions.get(one.key)
            if kept is None and len(self.functions) < FUNCTIONS:
                kept = self.functions[one.key] = Function()
            if kept is not None:
                kept.add(one, recorded)
        if recorded:
            self.ns += self._open_ns
            self.steps += 1
        self._open_count = self._open_ns = 0

    def _new(self) -> list[Compiled]:
        new = []
        for note in reversed(_notes()):
            if note is self._last:
                break
            with suppress(Exception):  # another torch may note it otherwise
                new.append(_read(note))
        return new[::-1]

    @property
    def handle(self) -> Handle:
        """What ends the counting."""
        return self._handle


def _notes() -> list[Any]:
    with suppress(Exception):
        notes: list[Any] = sys.modules[_UTILS].get_compilation_metrics()
        return notes
    return []


def _read(note: Any) -> Compiled:
    frame, _, again = str(note.compile_id).rpartition("/")
    times = again.partition("_")[0]  # 0/1_2: the second attempt at it
    reason = str(getattr(note, "recompile_reason", None) or "")
    return Compiled(
        key=frame,
        function=note.co_name or "",
        file=note.co_filename or "",
        line=note.co_firstlineno or 0,
        again=int(times),
        reason=" ".join(reason.partition(": ")[2].split() or reason.split())[:REASON],
        gave_up="limit" in str(note.fail_reason or "")[:80] and not note.co_name,
    )
