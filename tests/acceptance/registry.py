"""The table of programs: a decorator gives each its section and a sentence that describes it."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Final

from .judge import Judge

SECTIONS: Final = {
    "recompute": "Activation checkpointing",
    "targets": "Targets of the default",
    "steps": "Loops",
    "excluded": "Validation, saving, pauses",
    "stages": "Stages",
    "throughput": "Throughput",
    "findings": "Findings",
    "defects": "Defects",
    "healthy": "Healthy programs",
    "report": "The report itself",
    "random": "Random programs",
}
"""The sections with their titles, in order."""


@dataclass(frozen=True)
class Program:
    """One program: ``run`` trains a model, closes the session and returns the comparison."""

    name: str
    section: str
    sentence: str
    run: Callable[[], Judge]
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> str | None:
        """The first package that the program needs and that is not installed."""
        return next((name for name in self.needs if find_spec(name) is None), None)


_PROGRAMS: dict[str, Program] = {}


def program(section: str, sentence: str, *needs: str) -> Callable[[Callable[[], Judge]], Callable[[], Judge]]:
    """Enter a function in the table, under its own name."""
    if section not in SECTIONS:
        raise ValueError(f"section {section!r} is unknown; allowed: {', '.join(SECTIONS)}")

    def enter(run: Callable[[], Judge]) -> Callable[[], Judge]:
        add(Program(run.__name__, section, sentence, run, needs))
        return run

    return enter


def add(entry: Program) -> None:
    """Enter a program in the table; its name must be new."""
    if entry.name in _PROGRAMS:
        raise ValueError(f"two programs are called {entry.name!r}")
    _PROGRAMS[entry.name] = entry


def programs() -> dict[str, Program]:
    """Import every file of programs; return all by name, in the order of the sections."""
    from . import cases

    for file in iter_modules(cases.__path__):
        import_module(f"{cases.__name__}.{file.name}")
    return dict(sorted(_PROGRAMS.items(), key=lambda item: list(SECTIONS).index(item[1].section)))
