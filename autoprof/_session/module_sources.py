"""Where the code of the longest modules is: class, file and line, kept in ``run.json`` for ``autoprof explain``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from .._observer import Observer
from ..summary import Summary

if TYPE_CHECKING:
    from .._storage.runs import RunFolder

MAX_SOURCES: Final = 64
"""Modules whose source is kept, those with the most time of their own."""
TORCH: Final = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep


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
        wanted = tuple(dict.fromkeys([*found, *names.values()]))[:MAX_SOURCES]
        if wanted:
            self._folder.note("sources", find_sources(self._model, wanted))
        return summary


def find_sources(model: nn.Module, fqns: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Return the class of each module, and the file and line of its ``forward``.

    A module of torch has the place of the module around it: its own code is not the user's to change.
    """
    from .._targets import walk

    nodes = {fqn: node.inner for node in walk(model) for fqn in node.fqns}
    found: dict[str, dict[str, Any]] = {}
    for fqn in fqns:
        module = nodes.get(fqn)
        if module is None:
            continue
        place, around = _place(module), fqn
        while (place is None or place[0].startswith(TORCH)) and around:
            around = around.rpartition(".")[0]
            outer = nodes.get(around)
            place = place if outer is None else _place(outer)
        kept = place if place is not None and not place[0].startswith(TORCH) else (None, None)
        found[fqn] = {"class": type(module).__qualname__, "file": kept[0], "line": kept[1]}
    return found


def _place(module: nn.Module) -> tuple[str, int] | None:
    code = getattr(getattr(type(module), "forward", None), "__code__", None)
    return None if code is None else (os.path.abspath(code.co_filename), code.co_firstlineno)
