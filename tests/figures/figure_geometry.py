"""Boxes of a figure's parts: what lies beyond the canvas, covers data, or overlaps another text."""

import warnings
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

TOLERANCE = 1.0
"""Pixels by which boxes may touch."""


def problems(figure: Figure) -> list[str]:
    """Return a sentence for each part that is beyond the canvas, over the data, or over another text."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a layout that does not fit
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.draw_without_rendering()
    texts = [(text, box) for text in _texts(figure) if (box := _box(text)) is not None]
    found = [f"beyond the canvas: {text.get_text()!r}" for text, box in texts if not _is_inside(box, figure.bbox)]
    found += [
        f"overlap: {a.get_text()!r} and {b.get_text()!r}"
        for (a, box_a), (b, box_b) in combinations(texts, 2)
        if _overlap(box_a, box_b)
    ]
    for axes in figure.axes:
        legend = axes.get_legend()
        parts: list[Any] = [*([legend] if legend is not None else []), *figure.legends]
        found += [f"over the data: a legend in {_name(axes)}" for part in parts if _overlap(_extent(part), _data(axes))]
        titles = [text for text in (axes.title, axes._left_title, axes._right_title) if text.get_text().strip()]  # type: ignore[attr-defined]
        found += [f"over the data: {text.get_text()!r}" for text in titles if _overlap(_extent(text), _data(axes))]
        found += [f"too small: {_name(axes)}" for size in (axes.bbox.width, axes.bbox.height) if size < 100]
    return found


def _texts(figure: Figure) -> Iterator[Text]:
    yield from figure.texts
    for part in (figure._suptitle, figure._supxlabel):  # type: ignore[attr-defined]
        if part is not None and part not in figure.texts:
            yield part
    for legend in figure.legends:
        yield from legend.get_texts()
    for axes in figure.axes:
        if axes.axison:
            for axis in (axes.xaxis, axes.yaxis):
                yield axis.label
                yield from _tick_labels(axis)
        yield from (axes.title, axes._left_title, axes._right_title)  # type: ignore[attr-defined]
        yield from axes.texts
        if (legend := axes.get_legend()) is not None:
            yield from legend.get_texts()


def _box(text: Text) -> Bbox | None:
    """Return the box of the letters; None of a text that is not drawn."""
    if not text.get_visible() or not text.get_text().strip():
        return None
    if text.get_clip_on() and text.axes is not None:  # cut at the edge of the data, by intention
        return None
    return Text.get_window_extent(text)  # of an annotation without its arrow


def _tick_labels(axis: Any) -> Iterator[Text]:
    """Yield the labels of the ticks within the axis; others are not drawn."""
    low, high = sorted(axis.get_view_interval())
    for tick, place in zip(axis.get_major_ticks(), axis.get_majorticklocs(), strict=False):
        if low <= place <= high:
            yield from (tick.label1, tick.label2)


def _extent(part: Any) -> Bbox:
    return part.get_window_extent()  # type: ignore[no-any-return]


def _data(axes: Axes) -> Bbox:
    return axes.bbox


def _is_inside(box: Bbox, canvas: Any) -> bool:
    low, high = canvas.min - TOLERANCE, canvas.max + TOLERANCE
    return bool((box.min >= low).all() and (box.max <= high).all())


def _overlap(a: Bbox, b: Bbox) -> bool:
    width = min(a.x1, b.x1) - max(a.x0, b.x0)
    height = min(a.y1, b.y1) - max(a.y0, b.y0)
    return bool(width > TOLERANCE and height > TOLERANCE)


def _name(axes: Axes) -> str:
    return repr(axes.get_title(loc="left"))
