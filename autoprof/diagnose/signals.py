"""What a live run tells the rules beside its frames: calls in the step, compilations. Taken up at each step's end."""

from __future__ import annotations

from typing import Any, Final

from .._capture.probes import Compilations, LogProbe, SyncProbe
from .._capture.probes.calls import Call
from .._resolve import RawStep
from ..frame import StepFrame
from .calls import CallFacts, dry_ns, facts_of_calls
from .compiled import facts_of_compilations

WAITING: Final = 256
"""Steps kept until their frames come; a device is a few behind."""


class Signals:
    """The tables of one session's probes. Belongs to the training thread."""

    def __init__(self, syncs: SyncProbe, logs: LogProbe, compilations: Compilations) -> None:
        self._syncs = syncs
        self._logs = logs
        self._compilations = compilations
        self._waiting: dict[int, tuple[int, list[Call]]] = {}

    def closed(self, raw: RawStep, begun_ns: int, length_ns: int) -> None:
        """Take what was called in a step that has ended; what a warm-up step called is forgotten."""
        counts = not raw.warmup
        self._compilations.closed(length_ns, counts)
        logs, waits = self._logs.table, self._syncs.table
        if not counts:
            logs.drop()
            waits.drop()
            return
        calls = logs.take()
        logs.close_step(logs.count(calls) if calls else 0)
        if self._syncs.on_device:
            calls = waits.take()
            if calls:
                if len(self._waiting) >= WAITING:
                    del self._waiting[next(iter(self._waiting))]
                self._waiting[raw.step] = begun_ns, calls
            else:
                waits.close_step(0, 0)

    def add(self, frame: StepFrame) -> None:
        """Take the frame of a step: its marks tell when the device had work again after each wait."""
        if not self._waiting:
            return
        begun_ns, calls = self._waiting.pop(frame.step, (0, []))
        table = self._syncs.table
        dry = dry_ns(frame, begun_ns, calls) if calls and not frame.warmup else None
        if dry is not None:
            spent = table.count(calls)
            table.close_step(spent, min(spent, dry))

    def facts(self) -> dict[str, Any]:
        """Return the fields of ``Facts`` that are known from here."""
        waits: CallFacts | None = facts_of_calls(self._syncs.table, 1) if self._syncs.on_device else None
        return {
            "waits": waits,
            "logs": facts_of_calls(self._logs.table),
            "compiled": facts_of_compilations(self._compilations),
        }
