"""What ``torch.compile`` compiled anew while the run trained, as plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .._capture.probes.compilations import Compilations
from .calls import shorten_path

FUNCTIONS: Final = 8
"""Functions kept in the facts, those compiled anew most often."""


@dataclass(frozen=True, slots=True)
class Recompiled:
    """A function that was compiled again, ``count`` times in recorded steps; ``gave_up``: and then no more."""

    function: str
    file: str
    line: int
    count: int
    reason: str
    gave_up: bool

    @property
    def where(self) -> str:
        """The place as people write it: ``model.py:42``."""
        return f"{shorten_path(self.file)}:{self.line}" if self.file else "a place that torch does not name"


@dataclass(frozen=True, slots=True)
class CompileFacts:
    """Compilations of the recorded steps: ``run_ns`` is how long those steps took, ``ns`` of that they compiled."""

    steps: int
    run_ns: int
    compiled_steps: int
    ns: int
    functions: tuple[Recompiled, ...] = ()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CompileFacts:
        """Read back what ``dataclasses.asdict`` made."""
        return cls(**{**data, "functions": tuple(Recompiled(**one) for one in data["functions"])})


def facts_of_compilations(seen: Compilations) -> CompileFacts:
    """Return what was counted."""
    again = [one for one in seen.functions.values() if one.count or one.gave_up]
    again.sort(key=lambda one: (-one.count, one.file, one.line))
    functions = tuple(
        Recompiled(one.function or "a function", one.file, one.line, one.count, one.reason, one.gave_up)
        for one in again[:FUNCTIONS]
    )
    return CompileFacts(seen.recorded_steps, seen.recorded_ns, seen.steps, seen.ns, functions)
