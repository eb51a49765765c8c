"""Report each forward of the model, or of the modules that a program calls instead."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from torch import nn

from ...base.weak import Weak
from .call_sites import drop_site, site_of, table


class BoundaryProbe:
    """Call a function with the module before each forward of it, also while ``torch.compile`` traces the model.

    It is called before the module's entries are looked up: the first mark belongs to the step that begins here, with
    the probes of that step.
    """

    _module = Weak()

    def __init__(self, module: nn.Module, before: Callable[[nn.Module], None]) -> None:
        self._before = before
        self._module = module

    def attach(self) -> None:
        """Report forwards."""
        site = site_of(self._module)
        site.before = (*site.before, self._before)

    def detach(self) -> None:
        """Report no more to this function."""
        with suppress(ReferenceError):
            module = self._module
            site = table.find(module)
            if site is not None:
                site.before = tuple(one for one in site.before if one != self._before)
                drop_site(module)

    remove = detach
