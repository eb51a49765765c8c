"""``targets.yaml`` in a run's folder: rules that select the modules that autoprof chose."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from torch import nn

from .._core.failures import contain, ignore
from .._resolve.observer import Observer
from .._storage.atomic import write_atomic
from .._targets import CutGroup, CutRules
from ..frame import FrameRun
from ..summary import Stopped
from .zoom import Cut, Zoom

FILE_NAME: Final = "targets.yaml"
REASONS: Final[dict[Stopped, str]] = {
    "leaf": "no modules inside",
    "small": "a small part of the step",
    "budget": "timing the modules inside would exceed the budget",
    "hidden": "hooks do not fire inside",
}


class TargetsFile(Observer):
    """Write the cut when it has settled, and at the end; a killed run keeps the last one."""

    provides = FILE_NAME

    def __init__(self, folder: Path, model: nn.Module, zoom: Zoom) -> None:
        self._path = folder / FILE_NAME
        self._model = model
        self._zoom = zoom
        self._written: Cut | None = None

    def frames(self, run: FrameRun) -> None:
        """Write the file if the cut has settled on another one."""
        if self._zoom.has_settled and self._zoom.cut is not self._written:
            with contain(ignore):  # a full disk loses this file only
                self._write()

    def finish(self, *, complete: bool) -> Mapping[str, Any]:
        """Write the final cut with its shares of the step."""
        self._write()
        return {}

    def _write(self) -> None:
        zoom = self._zoom
        self._written, shares = zoom.cut, zoom.shares()
        groups = [
            CutGroup(group, shares.get(group.name), None if stopped is None else REASONS[stopped])
            for group in zoom.cut.groups
            for stopped in [zoom.cut.stopped[group.name]]
        ]
        write_atomic(self._path, CutRules(self._model).yaml(groups))
