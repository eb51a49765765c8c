"""autoprof in each of its states, from not opened to every sink writing."""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import autoprof

from .engine import deliver, throw_marks_away
from .variant import Family, Variant
from .workloads import Workload, with_phases

FORWARD: Final = ("forward",)
BOTH: Final = ("forward", "recompute", "backward")


class Discard(io.StringIO):
    """A stream that is no terminal and keeps nothing."""

    def write(self, text: str, /) -> int:
        """Take the text and forget it."""
        return len(text)


class NeverOpened(Variant):
    """autoprof is imported and nothing else: equal to bare, so it shows the noise."""

    family: ClassVar[Family] = "autoprof"
    name = "never_opened"
    label = "autoprof: imported, never opened"


class Sessions(Variant):
    """A whole session with these changes to the workload's configuration."""

    family: ClassVar[Family] = "autoprof"

    def __init__(self, name: str, label: str, phases: Sequence[str] | None, **changes: Any) -> None:
        self.name, self.label = name, label
        self._phases, self._changes = phases, changes
        self.session: Any = None

    def open(self, workload: Workload) -> None:
        """Instrument the model."""
        config = with_phases(workload.config, self._phases, **self._changes)
        self.session = autoprof.instrument(workload.model, config, optimizer=workload.optimizer)

    def end_step(self) -> None:
        """End the session's step: resolution, frame, aggregation and sinks are part of it."""
        self.session.step()

    def flush(self) -> None:
        """Resolve and write the steps that wait: the session takes several at once."""
        deliver(self.session)

    def close(self) -> None:
        """Close the session."""
        if self.session is not None:
            self.session.close()
        self.session = None


class Recording(Sessions):
    """The marks alone: real probes on a real recorder, thrown away at the step's end."""

    def __init__(self, name: str, label: str, phases: Sequence[str]) -> None:
        super().__init__(name, label, phases, sinks={})

    def open(self, workload: Workload) -> None:
        """Instrument the model, without memory marks and without functions."""
        bare = {"targets": [{**rule, "memory": False} for rule in workload.config["targets"]]}
        config = with_phases(bare, self._phases, **self._changes)
        self.session = autoprof.instrument(workload.model, config, optimizer=workload.optimizer)

    def end_step(self) -> None:
        """Take the marks and forget them."""
        throw_marks_away(self.session)


class Closed(Sessions):
    """A session that was opened, used and closed again before the block."""

    def open(self, workload: Workload) -> None:
        """Open a session, run steps in it, close it; the measurement comes after."""
        super().open(workload)
        try:
            for _ in range(2):
                workload.step()
                super().end_step()
        finally:
            super().close()

    def end_step(self) -> None:
        """Do nothing: there is no session any more."""

    def flush(self) -> None:
        """Do nothing."""


class Full(Sessions):
    """The workload's configuration as it stands, with every sink, into a temporary folder."""

    least_warmup: ClassVar[int] = 12
    """The console prints its first line after 10 steps; for that rich is imported and the whole summary computed."""

    def __init__(self) -> None:
        super().__init__("full", "autoprof: full config, all sinks", None)
        self._folder: str | None = None

    def open(self, workload: Workload) -> None:
        """Instrument the model with all four sinks; the console writes to a stream that is no terminal."""
        self._folder = tempfile.mkdtemp(prefix="autoprof-bench-")
        config = {key: value for key, value in workload.config.items() if key != "sinks"}
        with contextlib.redirect_stdout(Discard()):
            self.session = autoprof.instrument(
                workload.model, {**config, "output": self._folder}, optimizer=workload.optimizer
            )

    def close(self) -> None:
        """Close the session and remove its folder."""
        with contextlib.redirect_stdout(Discard()):
            super().close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def variants() -> list[Variant]:
    """Return autoprof in all its states, cheapest first."""
    return [
        NeverOpened(),
        Closed("closed", "autoprof: opened and closed again", BOTH, sinks={}),
        Sessions("idle", "autoprof: attached, not sampling", BOTH, sinks={}, sample={"every": 1_000_000_000}),
        Recording("record_forward", "autoprof: recording, forward", FORWARD),
        Sessions("session_forward", "autoprof: + resolution and statistics, forward", FORWARD, sinks={}),
        Recording("record_both", "autoprof: recording, forward + backward", BOTH),
        Sessions("session_both", "autoprof: + resolution and statistics, both", BOTH, sinks={}),
        Full(),
    ]
