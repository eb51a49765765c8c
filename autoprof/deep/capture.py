"""One deep capture: begun, told of its steps, ended, and what it saw written down. Nothing of it raises in a step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from .._capture.memory.snapshot import bounded
from .._process.signals import raised_by_handler
from .._storage.atomic import write_atomic
from .._units import format_bytes, format_ns
from ..devices import AllocatorHistory, find_allocator_history
from ..errors import SessionError
from .analyse import analyse
from .named import NamedRanges
from .options import MIB, DeepOptions, choose_stem
from .profile import DeepProfile
from .profiler import Profiler, supported
from .reading import Reading, scan
from .trace import rewrite

if TYPE_CHECKING:
    from .._targets import Target

ENTRIES: Final = 100_000
"""Allocations and frees that a snapshot remembers, the last ones."""
CUPTI: Final = (
    "after a capture on a GPU, CUPTI stays loaded unless TEARDOWN_CUPTI=1 is in the environment (torch's default from "
    "CUDA 12.6 on): where steps stay slower, set it before the program starts"
)
"""pytorch#144455; not with CUDA graphs on older versions of CUDA, which crash then."""


class Capture:
    """Record, write the trace, and read it. ``folder`` is made when there is something to write."""

    def __init__(
        self,
        options: DeepOptions,
        folder: Path,
        stem: str,
        rank: int,
        *,
        targets: Iterable[Target] = (),
        say: Callable[[str], None],
        snapshot_folder: Path | None = None,
        replace: bool = False,
        history: AllocatorHistory | None = None,
    ) -> None:
        self.options = options
        self.folder = folder
        self.rank = rank
        self.refused: str | None = None
        """Why there is no trace."""
        self.spent_ns = 0
        """What beginning and ending took."""
        self.spelt: dict[str, str] = {}
        """Names that the trace holds in another spelling until it is read."""
        self._stem = stem
        self._targets = tuple(targets)
        self._say_it = say
        self._snapshot_folder = snapshot_folder or folder
        self._replace = replace
        self._history = find_allocator_history() if history is None else history
        self._own_history = False
        self._profiler = Profiler(self._give_way)
        self._named: NamedRanges | None = None
        self._steps: list[int] = []
        self._process = os.getpid()
        self._trace: Path | None = None
        self._notes: list[str] = []

    @property
    def running(self) -> bool:
        """Whether it records."""
        return self._profiler.running

    @property
    def steps(self) -> Sequence[int]:
        """The steps that have begun in it."""
        return self._steps

    @property
    def trace(self) -> Path | None:
        """The file of the trace, when there is one."""
        return self._trace

    def path(self, name: str) -> Path:
        """Return where a file of this capture goes."""
        folder = self._snapshot_folder if name == self.options.names.snapshot else self.folder
        return folder / name.format(stem=self._stem, rank=self.rank)

    def say(self, note: str) -> None:
        """Say a note once."""
        if note not in self._notes:
            self._notes.append(note)
            self._say_it(note)

    # While the program runs.

    def begin(self) -> bool:
        """Start; return whether it records now. What is in the way is said."""
        began = perf_counter_ns()
        try:
            self._begin()
        except Exception as error:
            if raised_by_handler(error):
                raise
            self._refuse(str(error) if isinstance(error, SessionError) else f"{type(error).__name__}: {error}")
            self._attempt(self._stop_all)
        self.spent_ns += perf_counter_ns() - began
        return self.running

    def step(self, number: int) -> None:
        """Take word that this step begins; the first beyond ``max_steps`` ends the capture."""
        if not self.running:
            return
        if len(self._steps) >= self.options.max_steps:
            self.end_early()
            return
        self._steps.append(number)
        if self._named is not None:
            self._attempt(partial(self._named.step, number))

    def end_early(self) -> None:
        """End because there were as many steps as there may be."""
        if self.running:
            self.say(f"the deep capture ended after {self.options.max_steps} steps, as many as max_steps allows")
            self.end()

    def end(self) -> None:
        """Stop, wait for the device, and write the trace. Does nothing where it does not record."""
        if not self.running or os.getpid() != self._process:
            return
        began = perf_counter_ns()
        self._attempt(self._end_ranges)
        try:
            self._write_trace()
        except Exception as error:
            if raised_by_handler(error):
                raise
            self._refuse(f"{type(error).__name__}: {error}")
        self._attempt(self._end_snapshot)
        self.spent_ns += perf_counter_ns() - began

    def read(self) -> DeepProfile | None:
        """Read the trace, and cut it to its size. None where there is none."""
        path = self._trace
        if path is None or os.getpid() != self._process:
            return None
        reading = scan(path, self.spelt)
        profile = analyse(reading, self.options.patterns, self.rank)
        if reading.broken is not None:
            self.say(f"{path.name}: {reading.broken}; what comes after is in no table")
        else:
            self._fit(path, reading)
        return profile

    def _fit(self, path: Path, reading: Reading) -> None:
        limit, size = self.options.max_mib * MIB, path.stat().st_size
        threshold = reading.sizes.threshold(limit) if size > limit else 0
        if threshold is None:
            path.unlink()
            self._trace = None
            self._refuse(f"the ranges alone take more than {format_bytes(limit)}; ask for fewer steps")
        elif threshold or self.spelt:
            longest_ns = rewrite(path, threshold, self.spelt)
            if threshold:
                short = f"events below {format_ns(longest_ns)}, " if longest_ns else ""
                self.say(
                    f"{path.name} was cut from {format_bytes(size)} to {format_bytes(path.stat().st_size)}: "
                    f"{short}arrows and memory are left out; the tables count everything"
                )

    # Inside.

    def _begin(self) -> None:
        options = self.options
        activities, missing = supported(options.activities)
        if missing:
            self.say(f"deep capture: there is nothing here to record of {', '.join(missing)}")
        if not activities:
            raise SessionError("none of the activities asked for can be recorded here")
        for folder in {self.folder, self._snapshot_folder} if options.snapshot else {self.folder}:
            folder.mkdir(parents=True, exist_ok=True)
        if not self._replace:
            self._stem = choose_stem(self.folder, self._stem, options.names, self.rank)
        self._profiler.start(activities, memory=options.memory, shapes=options.shapes, stacks=options.stacks)
        self._trace, self.refused = None, None
        self._steps = []
        self._named = NamedRanges(self._targets, self.say, self.spelt)
        self._named.attach()
        if options.snapshot:
            self._attempt(self._begin_snapshot)

    def _begin_snapshot(self) -> None:
        if self._history is None or not self._history.available():
            self.say("deep capture: there is no CUDA device, so no snapshot of the allocator is written")
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
                self.say(f"{path.name} is not written: without any history it has more than {format_bytes(limit)}")
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
                self.say(f"deep capture: {CUPTI}")
        else:
            self._refuse(why)

    def _give_way(self) -> None:
        self.say("the deep capture ended early: another torch.profiler started, and two at once would break both")
        with suppress(Exception):
            self.end()

    def _refuse(self, why: str) -> None:
        self.refused = why
        self.say(f"no trace of the deep capture: {why}")

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
        try:
            action()
        except Exception as error:
            if raised_by_handler(error):
                raise
            self.say(f"deep capture: {type(error).__name__}: {error}")


def _devices() -> list[str]:
    return [str(one.name).lower() for one in supported(())[0]]
