"""The session's own observers: memory held, stages beside the training, and the places of the modules' code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from torch import nn

from ..base.frame import Phase
from ..base.storage.runs import RunFolder
from ..base.summary import Stage, Summary
from ..base.weak import Weak
from ..capture.marks.codes import KIND_BITS, Label
from ..capture.memory import Footprint, tabulate
from ..probes import Prefetch, Traffic
from ..resolve import RawStep
from ..resolve.observer import Observer
from ..targets import find_sources


class MemoryTable(Observer):
    """Add the table of memory held by the model and its optimizers."""

    provides = "table of memory"

    def __init__(self, footprint: Footprint) -> None:
        self._footprint = footprint

    def annotate(self, summary: Summary) -> Summary:
        """Return the summary with its memory table."""
        return tabulate(summary, self._footprint.rows(), self._footprint.failure)

    def finish(self, *, complete: bool) -> Mapping[str, Any]:
        """Count parameters, buffers and optimizer state once more."""
        self._footprint.rows(recount=True)
        return {}


class StageTimes(Observer):
    """Count the time of the stages beside the training, by name: validation, ``torch.save``; add it to the summary.

    The counts of fetches that found no batch are added, too: they are of unsampled steps as well.
    """

    provides = "times of the stages beside the training"

    def __init__(self, prefetch: Prefetch) -> None:
        self._prefetch = prefetch
        self._spent: dict[str, list[int]] = {}
        self._last_step: dict[str, int] = {}
        self._units: dict[str, dict[str, float]] = {}
        self.chosen: set[str] = set()
        """The stages that the program names as parts of its work."""

    def add(self, name: str, ns: int, step: int, units: Mapping[str, float]) -> None:
        """Count one interval; ``step`` steps have ended before it, and ``units`` were logged in it."""
        spent = self._spent.setdefault(name, [0, 0, 0, 0])
        spent[0] += 1
        spent[1] += max(ns, 0)
        spent[3] += max(ns, 0) if step == 0 else 0
        for unit, amount in units.items():
            of_stage = self._units.setdefault(name, {})
            of_stage[unit] = of_stage.get(unit, 0.0) + amount
        if step != self._last_step.get(name, 0):
            self._last_step[name] = step
            spent[2] += 1

    def annotate(self, summary: Summary) -> Summary:
        """Return the summary with these counts."""
        stages = tuple(
            Stage(name, calls, ns, steps, before_ns, self._units.get(name, {}), name in self.chosen)
            for name, (calls, ns, steps, before_ns) in self._spent.items()
        )
        return replace(summary, stages=stages, loader=self._prefetch.counts())


class CommunicationSizes(Observer):
    """Add the bytes that were communicated to the rows of communication."""

    provides = "bytes of communication"

    def __init__(self, traffic: Traffic, labels: Sequence[Label]) -> None:
        self._traffic = traffic
        self._labels = labels

    def step(self, raw: RawStep) -> RawStep:
        """Count the calls of a closed step."""
        self._traffic.close_step(not raw.warmup)
        return raw

    def annotate(self, summary: Summary) -> Summary:
        """Return the summary with the bytes of a mean step in these rows."""
        sizes = {self._labels[code >> KIND_BITS].name: size for code, size in self._traffic.sizes().items()}
        rows = tuple(
            replace(row, communicated_bytes=round(sizes[row.name] / summary.steps))
            if row.phase is Phase.COMM and row.name in sizes
            else row
            for row in summary.rows
        )
        return replace(summary, rows=rows) if sizes and summary.steps else summary


class ModuleSources(Observer):
    """Note where the code of the modules of the longest rows and of the findings is, once the run has ended."""

    provides = "places of the modules' code"

    _model = Weak()

    def __init__(self, model: nn.Module, folder: RunFolder) -> None:
        self._model = model
        self._folder = folder
        self._ended = False

    def finish(self, *, complete: bool) -> Mapping[str, Any]:
        """Have the next summary, the last one, note the places."""
        self._ended = True
        return {}

    def annotate(self, summary: Summary) -> Summary:
        """Note the class, the file and the line of each module by its fqn, in ``run.json``."""
        if not self._ended:
            return summary
        longest = sorted(summary.rows, key=lambda row: -row.self_ns)
        names = {row.name: row.fqn for row in longest if row.fqn is not None}
        found = [names.get(one.name, one.name) for one in summary.findings if one.name and one.severity != "info"]
        wanted = tuple(dict.fromkeys([*found, *names.values()]))[:64]
        with suppress(ReferenceError):
            self._folder.note("sources", find_sources(self._model, wanted))
        return summary
