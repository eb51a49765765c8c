"""Probes that have functions called around the calls of one module."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from torch import nn

from .call_sites import add_entry, remove_entry
from .hook_owner import HookOwner

if TYPE_CHECKING:
    from ..recorder import Recorder


class EntryProbe(HookOwner):
    """Attach and detach the entries of one module. A ``Probe``, and the owner of these entries."""

    where = "module hooks"
    """The name under which failures are counted."""
    outermost = False
    """Whether the entries are called outside of those that the module has."""

    def __init__(self, recorder: Recorder, module: nn.Module, code: int = 0) -> None:
        super().__init__(module, code)
        self.recorder = recorder
        self._entries: list[Any] = []
        """Outermost first."""
        self._attached = False

    def attach(self) -> None:
        """Have the entries called from now on."""
        if not self._attached:
            self._attached = True
            for entry in reversed(self._entries) if self.outermost else self._entries:
                add_entry(self.module, entry, first=self.outermost)

    def detach(self) -> None:
        """Have them called no more, also after an attach that was interrupted."""
        if self._attached:
            for entry in self._entries:
                remove_entry(self.module, entry)
            self._attached = False

    def remove(self) -> None:
        """Have them called no more, for good; nothing that the probe holds leads back to it."""
        self.detach()
        self._entries = []

    def fail(self, module: Any = None, error: Exception | None = None) -> None:
        """Count a failure of ours and detach; the user's call continues."""
        self.recorder.handle_failure(self.where)
        with contextlib.suppress(Exception):
            self.detach()
