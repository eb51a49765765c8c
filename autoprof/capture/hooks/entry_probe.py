"""Probes that have functions called around the calls of one module."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from torch import nn

from ...base.weak import Weak
from ..marks.codes import ENTER, LEAVE, RECOMPUTE
from .call_sites import drop_site, site_of, table

if TYPE_CHECKING:
    from ..recorder import Recorder


class HookOwner(ABC):
    """The object that a module's hooks are bound to: a probe of a module, or the losses of one class."""

    module = Weak()

    def __init__(self, module: Any, code: int) -> None:
        self.module = module
        self.code = code
        """The shifted index of the label of its marks."""
        self.enter_code, self.recompute_code, self.leave_code = code | ENTER, code | RECOMPUTE, code | LEAVE

    @abstractmethod
    def fail(self, module: Any, error: Exception | None = None) -> None:
        """Handle a failure of a hook: count it, and mark no more. Raises the exception of a user's signal handler."""


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
        """Have the entries called from now on; a module that the program has dropped is called no more."""
        if not self._attached:
            self._attached = True
            with contextlib.suppress(ReferenceError):
                site, own = site_of(self.module), tuple(self._entries)
                site.entries = (*own, *site.entries) if self.outermost else (*site.entries, *own)

    def detach(self) -> None:
        """Have them called no more, also after an attach that was interrupted."""
        if self._attached:
            with contextlib.suppress(ReferenceError):
                module = self.module
                site = table.find(module)
                if site is not None:
                    site.entries = tuple(one for one in site.entries if not any(one is own for own in self._entries))
                    drop_site(module)
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
