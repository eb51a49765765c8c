"""Tables of text: a first column that gives way, and columns of numbers that never touch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .text import cells, fit, glyphs_for, safe

GAP: Final = 2
"""The least blanks before a number."""


def render_rows(
    rows: Sequence[Sequence[str]], width: int, *, encoding: str = "utf-8", least: Sequence[int] = ()
) -> list[str]:
    """Return a line for each row, a name and numbers, none wider than ``width``; a long name loses its middle.

    The first column is as wide as the longest name where there is room, so that numbers stay near their names.
    ``least`` are the least widths of the columns of numbers.
    """
    shown = [[safe(cell, encoding) for cell in row] for row in rows]
    names, *columns = zip(*shown, strict=True)
    widths = [max(map(cells, column)) + GAP for column in columns]
    widths = [max(one, other) for one, other in zip(widths, least or widths, strict=True)]
    first = min(max(width - sum(widths), 0), max(map(cells, names)))
    ellipsis = glyphs_for(encoding).ellipsis
    lines = []
    for name, *numbers in shown:
        right = (" " * (size - cells(cell)) + cell for size, cell in zip(widths, numbers, strict=True))
        lines.append(fit(name, first, ellipsis) + "".join(right))
    return lines
