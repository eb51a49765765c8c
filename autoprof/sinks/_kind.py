"""The kinds of sinks: modules of this package, and entry points of other packages (group ``autoprof.sinks``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..base.plugins import PartKind

if TYPE_CHECKING:
    from ..base.options import Options
    from ..diagnose import SavedSteps
    from ._base import RunInfo, Sink


class CloseOrder(IntEnum):
    """When a sink is closed: files, then the terminal, then receivers of metrics; the picture, which is slow, last."""

    FILES = 0
    TERMINAL = 1
    RECEIVERS = 2
    PICTURES = 3


@dataclass(frozen=True, slots=True)
class Export:
    """A file that ``autoprof show RUN --OPTION FILE`` writes from the records of a saved run.

    ``write`` replaces the file, and raises ``OutputError`` where it cannot be written.
    """

    option: str
    help: str
    write: Callable[[SavedSteps, Path], None]


@dataclass(frozen=True, slots=True)
class SinkKind:
    """A kind of sink, found under the name of its module or entry point, which is its key below ``sinks:``.

    ``options`` is its section of the configuration, documented by docstrings. ``make`` returns an open sink from
    the options and the facts of the run. It raises ``OutputError`` where that is impossible; any other exception
    becomes one, with ``remedy`` as the advice. ``extra`` is the optional dependency of autoprof that it needs.
    ``in_folder``: it writes to the run's folder, so the run must have one. ``every_rank``: each rank has one;
    otherwise only rank 0. ``default``: its options where the configuration has no key ``sinks``, None where it is off
    then. ``grows``: its files grow with the number of steps,
    and it keeps them below ``RunInfo.max_bytes``.
    """

    options: type[Options]
    make: Callable[[Any, RunInfo], Sink]
    extra: str | None = None
    in_folder: bool = False
    every_rank: bool = False
    default: Options | None = None
    grows: bool = False
    close_order: CloseOrder = CloseOrder.RECEIVERS
    exports: tuple[Export, ...] = ()
    remedy: str = "correct its options"

    def __post_init__(self) -> None:
        if not (isinstance(self.options, type) and hasattr(self.options, "model_fields")):
            raise TypeError(f"options: {self.options!r} is no section; it must be a subclass of autoprof.sinks.Options")


SINKS: Final = PartKind("sink", "autoprof.sinks", "SINK", SinkKind)
