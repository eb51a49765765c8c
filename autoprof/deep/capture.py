"""One deep capture: start, mark steps, stop, write the trace, read it. It raises no exception inside a step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from .._process.failures import contain, describe
from .._storage.atomic import write_atomic
from .._units import format_bytes, format_ns
from ..devices import AllocatorHistory, find_allocator_history
from ..errors import SessionError
from .analyse import analyse
from .named import NamedRanges
from .options import MIB, DeepOptions, choose_stem
from .profile import DeepProfile
from .profiler import Profiler, supported
from .reading import Trace, scan
from .snapshot import bounded
from .trace import rewrite

if TYPE_CHECKING:
    from .._targets import Target

ENTRIES: Final = 100_000
"""Newest allocations and frees kept in a snapshot."""
CUPTI: Final = (
    "after a capture on a GPU, CUPTI stays loaded unless TEARDOWN_CUPTI=1 is in the environment (torch's default from "
    "CUDA 12.6 on). If steps stay slower, set it before the program starts"
)
"""pytorch#144455; not with CUDA graphs on older versions of CUDA, which crash then."""


class Capture:
    """Record, write the trace and read it. ``folder`` is made on the first write."""

    def __init__(
        self,
        options: DeepOptions,
        folder: Path,
        stem: str,
        rank: int,
        *,
        targets: Iterable[Target] = (),
        warn: Callable[[str], None],
        snapshot_folder: Path | None = None,
        replace: bool = False,
        history: AllocatorHistory | None = None,
    ) -> None:
        self.options = options
        self.folder = folder
        self.rank = rank
        self.refused: str | None = None
        """The reason for a missing trace."""
        self.spent_ns = 0
        """Time of starting and stopping."""
        self.encoded_names: dict[str, str] = {}
        """Encoded name in the trace → real name."""
        self._stem = stem
        self._targets = tuple(targets)
        self._warn = warn
        self._snapshot_folder = snapshot_folder or folder
        self._replace = replace
        self._history = find_allocator_history() if history is None else history
        self._own_history = False
        self._profiler = Profiler(self._stop_for_other_profiler)
        self._named: NamedRanges | None = None
        self._steps: list[int] = []
        self._process = os.getpid()
        self._trace: Path | None = None
        self._notes: list[str] = []

    @property
    def running(self) -> bool:
        """Whether the capture is recording."""
        return self._profiler.running

    @property
    def steps(self) -> Sequence[int]:
        """The numbers of the steps begun so far."""
        return self._steps

    @property
    def trace(self) -> Path | None:
        """The trace file, or None if there is none."""
        return self._trace

    def path(self, name: str) -> Path:
        """Return the path of a file of this capture."""
        folder = self._snapshot_folder if name == self.options.names.snapshot else self.folder
        return folder / name.format(stem=self._stem, rank=self.rank)

    def note(self, note: str) -> None:
        """Pass a note on once."""
        if note not in self._notes:
            self._notes.append(note)
            self._warn(note)

    def begin(self) -> bool:
        """Start recording; return whether it succeeded. A failure is a note."""
        began = perf_counter_ns()
        with contain(self._cancel):
            self._begin()
        self.spent_ns += perf_counter_ns() - began
        return self.running

    def step(self, number: int) -> None:
        """Mark the start of a step; the first beyond ``max_steps`` ends the capture."""
        if not self.running:
            return
        if len(self._steps) >= self.options.max_steps:
            self.end_early()
            return
        self._steps.append(number)
        if self._named is not None:
            self._attempt(partial(self._named.step, number))

    def end_early(self) -> None:
        """End the capture because ``max_steps`` is reached."""
        if self.running:
            self.note(f"the deep capture ended after {self.options.max_steps} steps, the limit max_steps")
            self.end()

    def end(self) -> None:
        """Stop, wait for the device, and write the trace. Does nothing if not recording."""
        if not self.running or os.getpid() != self._process:
            return
        began = perf_counter_ns()
        self._attempt(self._end_ranges)
        with contain(lambda error: self._refuse(describe(error))):
            self._write_trace()
        self._attempt(self._end_snapshot)
        self.spent_ns += perf_counter_ns() - began

    def read(self) -> DeepProfile | None:
        """Read the trace and cut it to ``max_mib``; None without a trace."""
        path = self._trace
        if path is None or os.getpid() != self._process:
            return None
        trace = scan(path, self.encoded_names)
        profile = analyse(trace, self.options.patterns, self.rank)
        if trace.broken is not None:
            self.note(f"{path.name}: {trace.broken}; the tables lack all later events")
        else:
            self._fit(path, trace)
        return profile

    def _fit(self, path: Path, trace: Trace) -> None:
        limit, size = self.options.max_mib * MIB, path.stat().st_size
        threshold = trace.sizes.threshold(limit) if size > limit else 0
        if threshold is None:
            path.unlink()
            self._trace = None
            self._refuse(f"the named ranges take more than {format_bytes(limit)}; ask for fewer steps")
        elif threshold or self.encoded_names:
            longest_ns = rewrite(path, threshold, self.encoded_names)
            if threshold:
                short = f"events below {format_ns(longest_ns)}, " if longest_ns else ""
                self.note(
                    f"{path.name} was cut from {format_bytes(size)} to {format_bytes(path.stat().st_size)}: "
                    f"{short}arrows and memory are removed; the tables count everything"
                )

    def _begin(self) -> None:
        options = self.options
        activities, missing = supported(options.activities)
        if missing:
            self.note(f"deep capture: torch cannot record {', '.join(missing)} here")
        if not activities:
            raise SessionError("torch can record none of the requested activities here")
        for folder in {self.folder, self._snapshot_folder} if options.snapshot else {self.folder}:
            folder.mkdir(parents=True, exist_ok=True)
        if not self._replace:
            self._stem = choose_stem(self.folder, self._stem, options.names, self.rank)
        self._profiler.start(activities, memory=options.memory, shapes=options.shapes, stacks=options.stacks)
        self._trace, self.refused = None, None
        self._steps = []
        self._named = NamedRanges(self._targets, self.note, self.encoded_names)
        self._named.attach()
        if options.snapshot:
            self._attempt(self._begin_snapshot)

    def _begin_snapshot(self) -> None:
        if self._history is None or not self._history.available():
            self.note("deep capture: there is no CUDA device, so no snapshot of the allocator is written")
        elif not self._history.recording():
            self._history.start(entries=ENTRIES, stacks="python")
            self._own_history = True

    def _end_snapshot(self) -> None:
        if not self.options.snapshot or self._history is None or not self._history.available():
            return
        path, limit = self.path(self.options.names.snapshot), self.options.max_mib * MIB
        try:
            content = bounded(self._history.snapshot(), limit)
            if content is None:
                self.note(f"{path.name} is not written: without any history it is larger than {format_bytes(limit)}")
            else:
                write_atomic(path, content)
        finally:
            self._stop_history()

    def _stop_history(self) -> None:
        if self._history is not None and self._own_history:
            self._own_history = False
            self._history.stop()

    def _write_trace(self) -> None:
        path = self.path(self.options.names.trace)
        why = self._profiler.stop(path, self.options.max_mib * MIB)
        if why is None:
            self._trace = path
            if any(name in ("cuda", "privateuse1") for name in _devices()):
                self.note(f"deep capture: {CUPTI}")
        else:
            self._refuse(why)

    def _stop_for_other_profiler(self) -> None:
        self.note("the deep capture ended early: another torch.profiler started, and two at once would break both")
        with suppress(Exception):
            self.end()

    def _cancel(self, error: Exception) -> None:
        self._refuse(str(error) if isinstance(error, SessionError) else describe(error))
        self._attempt(self._stop_all)

    def _refuse(self, why: str) -> None:
        self.refused = why
        self.note(f"no trace of the deep capture: {why}")

    def _end_ranges(self) -> None:
        named, self._named = self._named, None
        if named is not None:
            named.detach()

    def _stop_all(self) -> None:
        self._end_ranges()
        self._stop_history()
        if self._profiler.running:
            self._profiler.stop(None, 0)

    def _attempt(self, action: Callable[[], object]) -> None:
        with contain(lambda error: self.note(f"deep capture: {describe(error)}")):
            action()


def _devices() -> list[str]:
    return [str(one.name).lower() for one in supported(())[0]]
