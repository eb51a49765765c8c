"""Tables of text: a first column that gives way, and columns of numbers that never touch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .text import cells, fit

GAP: Final = 2
"""The least blanks before a number."""


def number_widths(rows: Sequence[Sequence[str]], least: Sequence[int]) -> list[int]:
    """Return the width of each column of numbers: ``least``, or more where a number or its head needs it."""
    longest = [max(map(cells, column), default=0) for column in zip(*rows, strict=True)] if rows else [0] * len(least)
    return [max(width, room + GAP) for width, room in zip(least, longest, strict=True)]


def render_rows(
    names: Sequence[str], numbers: Sequence[Sequence[str]], width: int, *, least: Sequence[int], ellipsis: str
) -> list[str]:
    """Return a line for each name and its numbers, none wider than ``width``; a long name is shortened in its middle.

    The first column is as wide as the longest name where there is room, so that numbers stay near their names.
    """
    widths = number_widths(numbers, least)
    room = max(width - sum(widths), 0)
    column = min(room, max(map(cells, names), default=0))
    return [
        fit(name, column, ellipsis) + "".join(_right(cell, size) for cell, size in zip(row, widths, strict=True))
        for name, row in zip(names, numbers, strict=True)
    ]


def _right(text: str, width: int) -> str:
    return " " * (width - cells(text)) + text
