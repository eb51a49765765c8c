"""The allocator's own snapshot, for a window of steps or when memory runs out: ``memory_snapshot_rank0.pickle``.

The file is what ``torch.cuda.memory._dump_snapshot`` writes, for pytorch.org/memory_viz; only what is older than its
size allows is left out.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

import torch

from ..._process.signals import raised_by_handler
from ..._units import format_bytes

OOM_FILES: Final = 4
"""Snapshots written when memory runs out, each over the last: cuDNN tries again with less, and a search for the
largest batch catches many."""
MIB: Final = 2**20


class History(Protocol):
    """What the allocator's recording is asked for; the tests have a fake one."""

    def available(self) -> bool:
        """Tell whether there is a device whose allocator records."""

    def recording(self) -> bool:
        """Tell whether somebody records already."""

    def start(self, *, entries: int, stacks: str) -> None:
        """Record allocations from now on."""

    def stop(self) -> None:
        """Record no more, unless somebody else has asked for it meanwhile."""

    def snapshot(self) -> dict[str, Any]:
        """Return what is held, and what was recorded."""

    def on_oom(self, call: Callable[[], None]) -> None:
        """Have this called each time memory has run out, before the exception is raised. There is no way back."""


class TorchHistory:
    """The recording of torch's native CUDA allocator."""

    _observed: ClassVar[bool] = False
    """Whether this process has its observer: one for all sessions, for torch cannot take it off."""

    def __init__(self) -> None:
        self._wrapped: tuple[Any, Any] | None = None
        self._touched = False

    def available(self) -> bool:
        return torch.cuda.is_available()

    def recording(self) -> bool:
        return bool(torch._C._cuda_isHistoryEnabled())

    def start(self, *, entries: int, stacks: str) -> None:
        memory: Any = torch.cuda.memory
        record = memory._record_memory_history
        record(max_entries=entries, stacks=stacks)

        def noting(*args: Any, **kwargs: Any) -> Any:
            self._touched = True
            return record(*args, **kwargs)

        self._touched, self._wrapped = False, (record, noting)
        memory._record_memory_history = noting

    def stop(self) -> None:
        if self._wrapped is None:
            return
        memory: Any = torch.cuda.memory
        (record, noting), self._wrapped = self._wrapped, None
        if memory._record_memory_history is noting:
            memory._record_memory_history = record
        if not self._touched:  # else it is the user who records now, or who has stopped it
            record(None)

    def snapshot(self) -> dict[str, Any]:
        found: dict[str, Any] = torch.cuda.memory._snapshot()
        return found

    def on_oom(self, call: Callable[[], None]) -> None:
        if TorchHistory._observed:
            return
        TorchHistory._observed = True
        torch._C._cuda_attach_out_of_memory_observer(lambda *_facts: call())  # type: ignore[attr-defined]


class Wanted(Protocol):
    """What the configuration says of it (``memory_snapshot``)."""

    @property
    def first(self) -> int | None: ...
    @property
    def window(self) -> int: ...
    @property
    def oom(self) -> bool: ...
    @property
    def history(self) -> bool: ...
    @property
    def entries(self) -> int: ...
    @property
    def stacks(self) -> str: ...
    @property
    def max_mib(self) -> int: ...


class SnapshotWindow:
    """Record the allocator for a window of steps and write its snapshot; or write one when memory has run out.

    Where the user records already, his recording is left alone and only its snapshot is taken. Nothing is raised.
    """

    def __init__(
        self, wanted: Wanted, folder: Path, rank: int, say: Callable[[str], None], history: History | None = None
    ) -> None:
        self._wanted = wanted
        self._stem = folder / f"memory_snapshot_rank{rank}"
        self._say = say
        self._history: History = TorchHistory() if history is None else history
        self._ended = 0
        self._started = False
        self._open = False
        self._ooms = 0
        self._process = os.getpid()

    def begin(self) -> None:
        """Start what is wanted from the first step on."""
        if not self._history.available():
            self._say("memory_snapshot: there is no CUDA device, so no snapshot is written")
            self._open = False
            self._ended = -1
            return
        if self._wanted.oom:
            _watch(self, self._history)
        if self._wanted.history:
            self._attempt(self._record)
        self._attempt(self._enter)

    def step_begins(self, step: int) -> None:
        """Take note that this step begins; steps that are not recorded need not be told of."""
        if self._ended < 0:
            return
        self._ended = step - 1
        self._attempt(self._leave)
        self._attempt(self._enter)

    def close(self) -> None:
        """Write what an unfinished window has, and leave no recording on."""
        _forget(self)
        if self._ended < 0 or os.getpid() != self._process:
            return
        if self._open:
            self._attempt(self._write_window)
        self._ended = -1
        self._attempt(self._stop)

    def _enter(self) -> None:
        if self._wanted.first is not None and self._ended == self._wanted.first - 1:
            self._open = True
            self._record()

    def _leave(self) -> None:
        if self._open and self._ended >= (self._wanted.first or 1) - 1 + self._wanted.window:
            self._write_window()
            if not self._wanted.history:
                self._stop()

    def _record(self) -> None:
        if not self._started and not self._history.recording():
            self._history.start(entries=self._wanted.entries, stacks=self._wanted.stacks)
            self._started = True

    def _stop(self) -> None:
        if self._started:
            self._started = False
            self._history.stop()

    def _write_window(self) -> None:
        self._open = False
        first = self._wanted.first or 1
        path = self._write("")
        if path is not None:
            steps = f"steps {first} to {self._ended}" if self._ended > first else f"step {first}"
            self._say(f"{path.name} has the allocations of {steps}; their times include what recording them took")

    def memory_ran_out(self) -> None:
        """Write what the allocator holds; the exception that follows is none of ours."""
        if os.getpid() == self._process and self._ooms < OOM_FILES:
            self._ooms += 1
            self._attempt(self._write_oom)

    def _write_oom(self) -> None:
        path = self._write("_oom")
        if path is not None:
            self._say(f"memory ran out: {path.name} has what the allocator held")

    def _write(self, suffix: str) -> Path | None:
        path = self._stem.with_name(f"{self._stem.name}{suffix}.pickle")
        limit = self._wanted.max_mib * MIB
        content = bounded(self._history.snapshot(), limit)
        if content is None:
            self._say(f"{path.name} is not written: without any history it has more than {format_bytes(limit)}")
            return None
        part = path.with_suffix(".part")
        try:
            part.write_bytes(content)
            os.replace(part, path)
        except OSError:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise
        return path

    def _attempt(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:
            if raised_by_handler(error):
                raise
            self._ended = -1
            self._say(f"memory_snapshot is off after {type(error).__name__}: {error}")
            with suppress(Exception):
                self._stop()


def bounded(snapshot: dict[str, Any], limit: int) -> bytes | None:
    """Pickle a snapshot into at most ``limit`` bytes: the older half of its history goes until it fits."""
    while len(content := pickle.dumps(snapshot)) > limit:
        traces = snapshot.get("device_traces") or []
        if not any(traces):
            return None
        snapshot = {**snapshot, "device_traces": [trace[(len(trace) + 1) // 2 :] for trace in traces]}
    return content


_windows: list[SnapshotWindow] = []


def _watch(window: SnapshotWindow, history: History) -> None:
    """Have the allocator tell when memory has run out."""
    _windows.append(window)
    history.on_oom(_ran_out)


def _forget(window: SnapshotWindow) -> None:
    if window in _windows:
        _windows.remove(window)


def _ran_out() -> None:
    for window in _windows[:]:
        window.memory_ran_out()
