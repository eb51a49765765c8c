"""Text of a fixed width: terminal cells instead of characters, elided names, tables, other encodings."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from rich.cells import cell_len, set_cell_size

from ..base.names import visible

LABEL: Final = 10
"""Cells of the labels at the left edge of a card."""
_IN_ASCII: Final = str.maketrans("┌│└─█░·…×→µ", "+|+-#.-~x>u")
"""The characters of reports for encodings that lack them, one cell each."""


def in_encoding(text: str, encoding: str) -> str:
    """Return a text in the characters of an encoding, in as many cells.

    East Asian encodings have box characters two cells wide, so only those of Unicode keep them.
    """
    try:
        if codecs.lookup(encoding).name.startswith("utf"):
            return text
    except LookupError:
        encoding = "ascii"
    return "".join(one if one.encode(encoding, "ignore") else "?" * cells(one) for one in text.translate(_IN_ASCII))


@lru_cache(maxsize=4096)
def safe(text: str) -> str:
    """Return a text without control characters and lone surrogates."""
    return visible(text).encode("utf-8", "replace").decode("utf-8")


def cells(text: str) -> int:
    """Count the terminal cells of a text; CJK characters take two."""
    return len(text) if text.isascii() else cell_len(text)


@lru_cache(maxsize=4096)
def fit(text: str, width: int) -> str:
    """Return the text in exactly ``width`` cells: padded, or with an ellipsis in its middle."""
    return pad(elide(text, width), width)


def pad(text: str, width: int) -> str:
    """Return the text padded with blanks to ``width`` cells."""
    return text + " " * (width - cells(text))


@lru_cache(maxsize=4096)
def elide(text: str, width: int) -> str:
    """Return the text in at most ``width`` cells, with an ellipsis in its middle: a name's end matters as much."""
    if cells(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    tail = (width - 1) // 2
    end, taken = len(text), 0
    while end and taken + cells(text[end - 1]) <= tail:
        end -= 1
        taken += cells(text[end])
    head = set_cell_size(text, width - 1 - taken).rstrip()
    return f"{head}…{text[end:]}"


def elide_all(names: Sequence[str], width: int) -> list[str]:
    """Return each name in at most ``width`` cells; names that would look alike lose their common beginning instead."""
    shown = [elide(name, width) for name in names]
    if len(set(shown)) == len(set(names)):
        return shown
    long = [name for name in names if cells(name) > width]
    same = next((at for at, column in enumerate(zip(*long, strict=False)) if len(set(column)) > 1), 0)
    begin = max(long[0].rfind(separator, 0, same) for separator in "/.") + 1
    return [elide("…" + name[begin:] if begin and cells(name) > width else name, width) for name in names]


def crop(text: str, width: int) -> str:
    """Return the text in at most ``width`` cells, without its end."""
    return text if cells(text) <= width else set_cell_size(text, max(width, 0))


def wrap(label: str, text: str, width: int, room: int = LABEL) -> list[str]:
    """Return a label and a text, wrapped between words; the caller crops a word wider than a line."""
    lines: list[str] = []
    line = ""
    for word in safe(text).split():
        if line and cells(line) + 1 + cells(word) > width - room:
            lines.append(line)
            line = ""
        line += f" {word}" if line else word
    return [fit(label if at == 0 else "", room) + part for at, part in enumerate([*lines, line])]


def render_rows(rows: Sequence[Sequence[str]], width: int, *, least: Sequence[int] = ()) -> list[str]:
    """Return a line for each row, a name and numbers, none wider than ``width``; a long name loses its middle.

    The first column is as wide as the longest name where there is room, so that numbers stay near their names.
    ``least`` are the least widths of the columns of numbers.
    """
    shown = [[safe(cell) for cell in row] for row in rows]
    names, *columns = zip(*shown, strict=True)
    widths = [max(map(cells, column)) + 2 for column in columns]  # two blanks before a number
    widths = [max(one, other) for one, other in zip(widths, least or widths, strict=True)]
    first = min(max(width - sum(widths), 0), max(map(cells, names)))
    lines = []
    for name, *numbers in shown:
        right = (" " * (size - cells(cell)) + cell for size, cell in zip(widths, numbers, strict=True))
        lines.append(fit(name, first) + "".join(right))
    return lines
