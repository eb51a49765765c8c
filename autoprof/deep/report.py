"""Write the files of a capture: tables, figures, memory as text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .._reports.figures import encode_figure
from .._storage.atomic import write_atomic
from .figures import memory_figure, time_figure
from .options import DeepOptions
from .profile import DeepProfile
from .text import render_memory, render_profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_report(profile: DeepProfile, options: DeepOptions, path: Callable[[str], Path]) -> list[Path]:
    """Write the files that ``options`` selects; return their paths. Raises ``OSError``."""
    names, written = options.names, []
    if options.tables:
        written.append(path(names.tables))
        write_atomic(written[-1], "\n".join(render_profile(profile, width=120)) + "\n")
    if options.layer_time:
        written += _save(time_figure(profile), path(names.time))
    if options.layer_memory:
        if profile.memory_calls():
            written.append(path(names.memory_text))
            write_atomic(written[-1], "\n".join(render_memory(profile)) + "\n")
        written += _save(memory_figure(profile), path(names.memory))
    return written


def _save(figure: Figure | None, path: Path) -> list[Path]:
    if figure is None:
        return []
    write_atomic(path, encode_figure(figure))
    return [path]
