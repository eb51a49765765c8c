"""One deep capture: start, mark steps, stop, write trace and tables. It raises no exception inside a step."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from torch._C._autograd import DeviceType
from torch.autograd.profiler_util import EventList

from ...base.failures import contain, describe
from ...base.names import file_name
from ...base.storage.atomic import replacing, write_atomic
from ...devices import AllocatorHistory
from ...errors import SessionError
from .named import STEP_PREFIX, NamedRanges
from .profiler import Profiler, supported
from .snapshot import AllocatorRecording

if TYPE_CHECKING:
    from ...targets import Target

MAX_STEPS: Final = 100
"""Largest ``max_steps``: viewers do not open larger traces."""


@dataclass(frozen=True, slots=True)
class FileNames:
    """File names or paths of a capture; ``{stem}`` and ``{rank}`` are replaced. Without ``tables`` none are written."""

    trace: str = "{stem}_rank{rank}_trace.json"
    tables: str = "{stem}_rank{rank}_tables.txt"
    snapshot: str = "{stem}_rank{rank}_memory_snapshot.pickle"


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """What a capture records. ``activities``: ``cpu``, ``cuda``, …; empty means all that are available."""

    activities: tuple[str, ...] = ()
    memory: bool = True
    shapes: bool = False
    stacks: bool = False
    snapshot: bool = False
    max_steps: int = 10
    names: FileNames = FileNames()


def make_options(
    *,
    activities: Iterable[Any] | None = None,
    max_steps: int = 10,
    names: FileNames | None = None,
    **flags: Any,
) -> CaptureOptions:
    """Check the arguments of a capture and make its options. Raises ``SessionError``."""
    known = ("cpu", "cuda", "xpu", "mtia", "hpu", "privateuse1")
    if isinstance(max_steps, bool) or not isinstance(max_steps, int) or not 1 <= max_steps <= MAX_STEPS:
        raise SessionError(f"deep_capture: max_steps is {max_steps!r}; allowed: a whole number from 1 to {MAX_STEPS}")
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise SessionError(f"deep_capture: {name} is {value!r}; allowed: True or False")
    given = (activities,) if isinstance(activities, str) else activities or ()
    words = tuple(dict.fromkeys(str(getattr(one, "name", one)).lower() for one in given))
    for word in words:
        if word not in known:
            raise SessionError(f"deep_capture: activities: {word!r} is unknown; allowed: {', '.join(known)}")
    return CaptureOptions(activities=words, max_steps=max_steps, names=names or FileNames(), **flags)


class Capture:
    """Record some steps with ``torch.profiler`` under autoprof's names. ``folder`` is made on the first write."""

    def __init__(
        self,
        options: CaptureOptions,
        folder: Path,
        stem: str,
        rank: int,
        *,
        targets: Iterable[Target] = (),
        warn: Callable[[str], None],
        replace: bool = False,
        history: AllocatorHistory | None = None,
    ) -> None:
        self.options = options
        self.folder = folder
        self.rank = rank
        self.steps: list[int] = []
        """The numbers of the steps begun so far."""
        self.profile: Any = None
        """torch's profile with the recorded events; None without a trace."""
        self.refused: str | None = None
        """The reason for a missing trace."""
        self.files: list[Path] = []
        """The written files, the trace first."""
        self.encoded_names: dict[str, str] = {}
        """Names of ranges by their form in the trace."""
        self._stem = file_name(stem)
        self._targets = tuple(targets)
        self._warn = warn
        self._replace = replace
        allocator = AllocatorHistory() if history is None else history
        self._recording = AllocatorRecording(allocator) if options.snapshot and allocator.available() else None
        self._profiler = Profiler(self._stop_for_other_profiler)
        self._named: NamedRanges | None = None
        self._process = os.getpid()
        self._notes: list[str] = []

    @property
    def running(self) -> bool:
        """Whether the capture is recording."""
        return self._profiler.running

    def note(self, note: str) -> None:
        """Pass a note on once."""
        if note not in self._notes:
            self._notes.append(note)
            self._warn(note)

    def begin(self) -> bool:
        """Start recording; return whether it succeeded. A failure is a note."""
        with contain(self._cancel):
            self._begin()
        return self.running

    def step(self, number: int) -> None:
        """Mark the start of a step; the first beyond ``max_steps`` ends the capture."""
        if not self.running:
            return
        if len(self.steps) >= self.options.max_steps:
            self.end_early()
            return
        self.steps.append(number)
        if self._named is not None:
            self._attempt(partial(self._named.step, number))

    def end_early(self) -> None:
        """End the capture because ``max_steps`` is reached."""
        if self.running:
            self.note(f"the deep capture ended after {self.options.max_steps} steps, the limit max_steps")
            self.end()

    def end(self) -> None:
        """Stop, wait for the device, and write the files. Does nothing if not recording."""
        if not self.running or os.getpid() != self._process:
            return
        self._attempt(self._end_ranges)
        with contain(lambda error: self._refuse(describe(error))):
            self._write_trace()
        if self.profile is not None and self.options.names.tables:
            self._attempt(self._write_tables)
        if self._recording is not None:
            self._attempt(partial(self._end_snapshot, self._recording))

    def averages(self) -> EventList:
        """Return ``key_averages`` of the capture, under the real names."""
        averages: EventList = self.profile.key_averages()
        for one in averages:
            one.key = self.encoded_names.get(one.key, one.key)
        return averages

    def table(self) -> str:
        """Return the table of layers in the order of their first calls, and that of operators."""
        # Operators in the table, those with the most time of their own.
        rows = 40
        averages = self.averages()
        names = dict.fromkeys(self.encoded_names.values())
        layers = {one.key: one for one in averages if one.key in names and one.device_type == DeviceType.CPU}
        others = [one for one in averages if one.key not in names and not one.key.startswith(STEP_PREFIX)]
        others.sort(key=lambda one: (-one.self_device_time_total, -one.self_cpu_time_total))
        parts = [
            f"Deep capture of {_describe_steps(self.steps)}, rank {self.rank}; times include the cost of recording"
        ]
        if layers:
            ordered = [layers[name] for name in names if name in layers]
            parts += ["", "layers, in order", _table(ordered, averages)]
        else:
            parts += ["", "layers: none; name layers with targets or record(name, function)"]
        parts += ["", f"operators, the {rows} with the most time of their own", _table(others[:rows], averages)]
        parts += [f"note: {note}" for note in self._notes]
        return "\n".join(parts)

    def _begin(self) -> None:
        options = self.options
        activities, missing = supported(options.activities)
        if missing:
            self.note(f"deep capture: torch cannot record {', '.join(missing)} here")
        if not activities:
            raise SessionError("torch can record none of the requested activities here")
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self._replace:
            self._stem = self._free_stem()
        self._profiler.start(activities, memory=options.memory, shapes=options.shapes, stacks=options.stacks)
        self.files, self.refused, self.profile, self.steps = [], None, None, []
        self._named = NamedRanges(self._targets, self.note, self.encoded_names)
        self._named.attach()
        if options.snapshot and self._recording is None:
            self.note("deep capture: there is no CUDA device, so no snapshot of the allocator is written")
        elif self._recording is not None:
            self._attempt(self._recording.start)

    def _free_stem(self) -> str:
        """Return the stem, with a number appended where files of that name exist."""
        stem, number = self._stem, 1
        names = self.options.names
        while any(self._path(name, stem).exists() for name in (names.trace, names.tables) if name):
            number += 1
            stem = f"{self._stem}-{number}"
        return stem

    def _path(self, name: str, stem: str | None = None) -> Path:
        return self.folder / name.format(stem=stem or self._stem, rank=self.rank)

    def _end_snapshot(self, recording: AllocatorRecording) -> None:
        path = self._path(self.options.names.snapshot)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            recording.write(path)
            self.files.append(path)
        finally:
            recording.stop()

    def _write_trace(self) -> None:
        profile = self._profiler.stop()
        path = self._path(self.options.names.trace)
        with replacing(path) as draft:
            profile.export_chrome_trace(str(draft))
            _restore_names(draft, self.encoded_names)
        self.files.append(path)
        self.profile = profile
        if any(str(one.name).lower() in ("cuda", "privateuse1") for one in supported(())[0]):
            # pytorch#144455; not with CUDA graphs on older versions of CUDA, which crash then.
            self.note(
                "deep capture: after a capture on a GPU, CUPTI stays loaded unless TEARDOWN_CUPTI=1 is in the "
                "environment (torch's default from CUDA 12.6 on). If steps stay slower, set it before the program "
                "starts"
            )

    def _write_tables(self) -> None:
        path = self._path(self.options.names.tables)
        write_atomic(path, self.table() + "\n")
        self.files.append(path)

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
        if self._recording is not None:
            self._recording.stop()
        if self._profiler.running:
            self._profiler.stop()

    def _attempt(self, action: Callable[[], object]) -> None:
        with contain(lambda error: self.note(f"deep capture: {describe(error)}")):
            action()


def _table(rows: Sequence[Any], averages: Any) -> str:
    """Return rows of ``key_averages`` as torch's own table."""
    listed: Any = EventList(  # type: ignore[no-untyped-call]
        rows, use_device=averages._use_device, profile_memory=averages._profile_memory
    )
    return str(listed.table(row_limit=-1, max_name_column_width=70)).strip("\n")


def _describe_steps(steps: Sequence[int]) -> str:
    if not steps:
        return "one block"
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"


def _restore_names(path: Path, encoded_names: Mapping[str, str]) -> None:
    """Write the real names into the trace, in the place of the encoded ones."""
    changed = {json.dumps(encoded): json.dumps(name) for encoded, name in encoded_names.items() if encoded != name}
    if not changed:
        return
    pattern = re.compile("|".join(map(re.escape, changed)))
    with (
        replacing(path) as draft,
        path.open(encoding="utf-8", errors="replace") as trace,
        draft.open("w", encoding="utf-8") as out,
    ):
        for line in trace:
            out.write(pattern.sub(lambda found: changed[found[0]], line))
