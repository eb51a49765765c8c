"""The module whose parameters FSDP2 (``fully_shard``) gathers or whose gradients it reduces now.

FSDP2 communicates by groups of parameters, one for each module that is sharded, from hooks around the module and from
those around another one, which prefetch. Its class for a group is private; where it has other methods, no module is
named.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from ..base.process.replace import Attribute, Listener, Replacement

PLACES: Final = (
    "torch.distributed.fsdp._fully_shard._fsdp_param_group",
    "torch.distributed._composable.fsdp._fsdp_param_group",
)
"""Where torch has the class: since 2.6, and before."""
METHODS: Final = ("unshard", "wait_for_unshard", "post_backward")
"""The methods that communicate."""
_listeners: list[Any] = []
_made: dict[tuple[str, str], Replacement] = {}


def sharding_replacements() -> Iterator[Replacement]:
    """Yield the methods, where the program has imported FSDP2."""
    for place in PLACES:
        group = getattr(sys.modules.get(place), "FSDPParamGroup", None)
        for method in METHODS:
            if hasattr(group, method):
                yield _made.setdefault((place, method), Replacement(Attribute(group, method), listeners=_listeners))


class ShardedModule(Listener):
    """Know the sharded module that communicates now."""

    def __init__(self) -> None:
        self._running: list[str] = []

    @property
    def label(self) -> str:
        """The words for it; nothing where none communicates. Modules in a list are one, as their rows are."""
        return self._running[-1] if self._running else ""

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        fqn = getattr(args[0], "_module_fqn", None) if args else None
        name = re.sub(r"(?<=\.)\d+(?=\.|$)", "*", str(fqn or ""))
        self._running.append(f" of {name or 'the root'}")
        return True

    def leave(self) -> None:
        del self._running[-1:]
