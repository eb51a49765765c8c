"""The session's own observers: memory held, compiled modules, and counts outside of steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from .._capture.marks.codes import ENTER, INDEX_MASK, KIND_BITS, KIND_MASK
from .._capture.memory import Footprint, tabulate
from .._capture.recorder import Recorder
from .._core.names import shorten, visible
from .._core.notes import Notes
from .._resolve import RawStep
from .._resolve.observer import Observer
from ..probes import Prefetch
from ..summary import Excluded, Summary


class MemoryTable(Observer):
    """Add the table of memory held by the model and its optimizers."""

    provides = "table of memory"

    def __init__(self, footprint: Footprint) -> None:
        self._footprint = footprint

    def annotate(self, summary: Summary) -> Summary:
        """Return the summary with its memory table."""
        return tabulate(summary, self._footprint.holdings(), self._footprint.failure)

    def finish(self, *, complete: bool) -> Mapping[str, Any]:
        """Count parameters, buffers and optimizer state once more."""
        self._footprint.holdings(recount=True)
        return {}


class ExcludedTime(Observer):
    """Count the time that belongs to no step, by name: validation, ``torch.save``, pauses; add it to the summary.

    The counts of fetches that found no batch are added, too: they are of unsampled steps as well.
    """

    provides = "counts of excluded time"

    def __init__(self, prefetch: Prefetch) -> None:
        self._prefetch = prefetch
        self._spent: dict[str, list[int]] = {}
        self._last_step: dict[str, int] = {}

    def add(self, name: str, ns: int, step: int) -> None:
        """Count one interval; ``step`` steps have ended before it."""
        spent = self._spent.setdefault(name, [0, 0, 0, 0])
        spent[0] += 1
        spent[1] += max(ns, 0)
        spent[3] += max(ns, 0) if step == 0 else 0
        if step != self._last_step.get(name, 0):
            self._last_step[name] = step
            spent[2] += 1

    def all(self) -> tuple[Excluded, ...]:
        """Return the counts so far, in order of first appearance."""
        return tuple(Excluded(name, *counts) for name, counts in self._spent.items())

    def annotate(self, summary: Summary) -> Summary:
        """Return the summary with these counts."""
        return replace(summary, excluded=self.all(), loader=self._prefetch.counts())


class CompiledModules(Observer):
    """Note what torch compiled and hooks no longer see; exclude the step that compiled."""

    provides = "notes on compiled modules"

    def __init__(self, recorder: Recorder, unseen: Iterable[str], notes: Notes) -> None:
        self._recorder = recorder
        self._notes = notes
        self.named = set(unseen)
        """The fqns of modules without hooks that a note names already."""
        self.model_hidden = False
        """Whether torch compiled a function around the model, so that no module is seen: a note says so."""
        self._compiled = self._found = False

    def compiled(self) -> None:
        """Called when torch has compiled: the open step shows which modules hooks no longer see."""
        self._compiled = True

    def found(self) -> None:
        """Called for each compiled module, which torch may have compiled before the session."""
        self._found = True

    def step(self, raw: RawStep) -> RawStep:
        """Return the step, as a warm-up step where torch compiled in it."""
        if not (self._compiled or self._found):
            return raw
        self._name_unseen(raw)
        compiled, self._compiled, self._found = self._compiled, False, False
        if not compiled:
            return raw
        if raw.warmup:
            return raw
        # The reason for an excluded step: compiling takes seconds that no other step takes.
        self._notes.skip("steps in which torch compiled, excluded as warm-up")
        return raw._replace(warmup=True)

    def _name_unseen(self, raw: RawStep) -> None:
        seen = {code >> KIND_BITS & INDEX_MASK for code in raw.mark_batch.codes if code & KIND_MASK == ENTER}
        labels = [label for at, label in enumerate(self._recorder.labels) if at not in seen]
        expected = raw.instrumented - self.named
        unseen = {label.fqn: label.fqn or label.name for label in labels if label.fqn in expected}
        self.named.update(fqn for fqn in unseen if fqn is not None)
        if not unseen:
            return
        names = shorten(visible(", ".join(unseen.values())), 200)
        if not any(self._recorder.labels[at].fqn is not None for at in seen):
            self.model_hidden = True
            self._notes.warn_once(
                f"hooks do not fire inside graphs of torch.compile: step {raw.step} called no module of the model: "
                f"{names}. A function around the model is compiled, so that the model's forward is not measured: its "
                "time is part of `other`. To see it, compile the model itself: torch.compile(model)"
            )
        else:
            self._notes.warn_once(
                f"hooks do not fire inside graphs of torch.compile: step {raw.step} did not call {names}. A compiled "
                "module is timed as a whole, and recompute in its graph is part of backward; to see parts of it, "
                "compile them one by one, as in block.compile(), or train some steps without torch.compile"
            )
