"""The style of all figures: fonts, colours, and a figure without pyplot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ..frame import Phase
from .fonts import Script

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS: Final = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c6d31", "#7b4fa3")
"""Distinguishable for colour-blind people (Okabe and Ito 2008), and two more."""
_PHASE_COLORS: Final = dict(
    zip((Phase.COMM, Phase.DATA, Phase.H2D, Phase.USER, Phase.OPTIMIZER), COLORS[3:], strict=True)
)
"""Colours of the phases that have none in the table of phases."""
INK: Final = "#333333"
FAINT: Final = "#6b6b6b"
GRID: Final = "#d9d9d9"


def phase_color(phase: Phase) -> str:
    """Return the colour of a phase on pages."""
    return _PHASE_COLORS.get(phase) or phase.traits.color


@contextmanager
def styled(script: Script) -> Iterator[None]:
    """Draw with matplotlib's defaults and the script's fonts, not with the program's settings."""
    import matplotlib as mpl

    defaults = {key: value for key, value in mpl.rcParamsDefault.items() if key not in ("backend", "backend_fallback")}
    with mpl.rc_context({**defaults, "font.family": list(script.families), "axes.unicode_minus": False}):
        yield


def blank_figure(width: float, height: float) -> Figure:
    """Return a figure of this size in inches, without a window and unknown to pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12, wspace=0.04)
    figure = Figure(figsize=(width, height), dpi=120, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def bare(axes: Axes) -> None:
    """Remove the frame and tint the axes: only elements with information remain."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GRID)
    axes.tick_params(colors=INK, labelsize=9)
    axes.set_axisbelow(True)
