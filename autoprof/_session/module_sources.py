"""Where the code of the longest modules is: class, file and line, kept in ``run.json`` for ``autoprof explain``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from .._resolve.observer import Observer
from .._storage.runs import RunFolder
from .._targets import find_sources
from ..summary import Summary


class ModuleSources(Observer):
    """Note where the code of the modules of the longest rows and of the findings is, once the run has ended."""

    provides = "places of the modules' code"

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
        if wanted:
            self._folder.note("sources", find_sources(self._model, wanted))
        return summary
