"""The style of all figures: fonts, colours, widths of a paper, legends above the data, and figures without pyplot."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..base.frame import Phase
from ..errors import OutputError, nearest
from .text import cells, elide, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS: Final = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c6d31", "#7b4fa3")
"""Distinguishable for colour-blind people (Okabe and Ito 2008), and two more."""
_PHASE_COLORS: Final = dict(
    zip((Phase.COMM, Phase.DATA, Phase.H2D, Phase.USER, Phase.OPTIMIZER), COLORS[3:], strict=True)
)
"""Colours of the phases that have none in the table of phases."""
FORMATS: Final = ("png", "svg", "pdf")
TWO_COLUMNS_IN: Final = 7.2
"""The width of a page of a paper with two columns."""
ONE_COLUMN_IN: Final = 3.5
DPI: Final = 200
TEXT: Final = 7.5
"""Points of the text, legible in print; names and notes have ``SMALL``."""
SMALL: Final = 6.5
TITLE: Final = 8.0
INK: Final = "#333333"
FAINT: Final = "#6b6b6b"
_STYLE: Final[Any] = {
    "font.size": TEXT, "axes.labelsize": TEXT, "xtick.labelsize": 7, "ytick.labelsize": 7, "axes.labelcolor": INK,
    "text.color": INK, "axes.edgecolor": "#999999", "xtick.color": INK, "ytick.color": INK, "axes.linewidth": 0.7,
    "svg.fonttype": "path", "pdf.fonttype": 42,
}  # fmt: skip
_CJK_FONTS: Final = (
    "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Noto Sans CJK JP", "Noto Sans JP", "PingFang SC",
    "Hiragino Sans GB", "Microsoft YaHei", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "SimHei", "Droid Sans Fallback",
    "Arial Unicode MS",
)  # fmt: skip
"""Fonts for characters that matplotlib's own font lacks."""


def phase_color(phase: Phase) -> str:
    """Return the colour of a phase on pages."""
    return _PHASE_COLORS.get(phase) or phase.traits.color


@contextmanager
def styled() -> Iterator[None]:
    """Draw in this style, on matplotlib's defaults and with CJK fonts, not with the program's settings."""
    import matplotlib as mpl

    defaults = {key: value for key, value in mpl.rcParamsDefault.items() if key not in ("backend", "backend_fallback")}
    style = {**defaults, **_STYLE, "font.family": list(_font_families()), "axes.unicode_minus": False}
    with mpl.rc_context(style), _without_glyph_warnings():
        yield


@lru_cache(maxsize=1)
def _font_families() -> tuple[str, ...]:
    """Return matplotlib's own font, and the installed ones that have CJK characters."""
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return ("DejaVu Sans", *(name for name in _CJK_FONTS if name in installed))


@contextmanager
def _without_glyph_warnings() -> Iterator[None]:
    """Draw a character that no font has as an empty box, without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def blank_figure(width: float, height: float, kind: type[Figure] | None = None) -> Figure:
    """Return a figure of this size in inches, without a window and unknown to pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06, hspace=0.03, wspace=0.03)
    figure = (kind or Figure)(figsize=(width, height), dpi=DPI, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def bare(axes: Axes, *, grid: Any = "y") -> None:
    """Remove the frame and tint the axes: only elements with information remain."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if grid:
        axes.grid(axis=grid, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def set_title(axes: Axes, text: str, pad: float | None = None) -> None:
    """Set the title, at the left edge, ``pad`` points above the axes."""
    axes.set_title(text, loc="left", fontsize=TITLE, color=INK, fontweight="bold", pad=pad)


def settle(figure: Figure, note: str = "") -> None:
    """Lay out the figure with each legend between its axes and their title, so that none covers data.

    Twin axes share a legend. Labels wider than the axes lose their middle. The layout is fixed in the current style.
    """
    if note:
        text = "\n".join(wrap("", note, int(20.5 * figure.get_figwidth()), room=0))
        figure.supxlabel(text, fontsize=SMALL, color=FAINT, x=0.01, ha="left", parse_math=False)
    figure.draw_without_rendering()
    for axes in figure.axes:
        twins = [axes, *(one for one in figure.axes if one is not axes and axes.get_shared_x_axes().joined(axes, one))]
        entries = [entry for one in twins for entry in zip(*one.get_legend_handles_labels(), strict=True)]
        title = axes.get_title(loc="left")
        if title and entries:
            set_title(axes, title, _add_legend(axes, {label: handle for handle, label in entries}))
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the layout stands: writing the file does not compute it again


def _add_legend(axes: Axes, handles: Mapping[str, Any]) -> float:
    """Draw a legend above these axes; return the points that the title must be above them."""
    # A label of a legend is not made shorter than this.
    fewest_cells = 8
    labels, columns = list(handles), len(handles)
    room = axes.get_window_extent().width
    while True:
        drawn = axes.legend(
            handles.values(), labels, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, frameon=False,
            fontsize=SMALL, borderaxespad=0.3, borderpad=0, handlelength=1.8, columnspacing=1.1, handletextpad=0.5,
            labelspacing=0.25, labelcolor=INK,
        )  # fmt: skip
        drawn.set_in_layout(False)  # the title has the room for it
        for text in drawn.get_texts():
            text.set_parse_math(False)  # a name may hold dollar signs
        width = drawn.get_window_extent().width
        longest = max(map(cells, labels))
        if width <= room or (columns == 1 and longest <= fewest_cells):
            return float(drawn.get_window_extent().height) * 72 / axes.figure.dpi + 6
        if columns > 1:
            columns -= 1
        else:
            labels = [elide(label, max(int(longest * room / width) - 1, fewest_cells)) for label in labels]


def encode_figure(figure: Figure, ending: str = "png") -> bytes:
    """Return the figure as a file in a format of ``FORMATS``."""
    import matplotlib as mpl

    buffer = BytesIO()
    # These settings take effect when a file is written.
    settings: Any = {key: _STYLE[key] for key in ("svg.fonttype", "pdf.fonttype")}
    with mpl.rc_context(settings), _without_glyph_warnings():
        figure.savefig(buffer, dpi=DPI, format=ending, metadata={"Date": None} if ending == "svg" else None)
    return buffer.getvalue()


def save_figure(figure: Figure, path: str | os.PathLike[str], *, default: str = "") -> Path:
    """Write the figure in the format of the file's name, or ``default`` where it has none. Raises ``OutputError``."""
    target = Path(path)
    data = encode_figure(figure, check_format(target, default=default))
    try:
        target.write_bytes(data)
    except OSError as error:
        reason = f"cannot be written: {error.strerror}; allowed: a file in a writable folder"
        raise OutputError(f"{target}: {reason}") from error
    return target


def check_format(path: Path, *, default: str = "") -> str:
    """Return the format of a figure with this file name. Raises ``OutputError``."""
    ending = path.suffix.lower().removeprefix(".") or default
    if ending not in FORMATS:
        problem = f"{ending!r} is not a format of figures" if ending else "the name has no format"
        raise OutputError(f"{path}: {problem}; {nearest(ending, FORMATS)}")
    return ending
