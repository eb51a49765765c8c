"""One expression for all lines of a form: matching a line is several times faster than splitting it at numbers."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Final

from .line_forms import BAR_SIGNS, NUMBER_TOKEN

_MAX_NUMBERS: Final = 60
_BLOCKS_A_SIGN: Final = re.compile(r"[A-Za-z_\d.][-+]$")


def compile_line(pieces: Sequence[str]) -> re.Pattern[str] | None:
    """Return an expression for the lines that ``NUMBER_IN_LINE`` splits like this one, a group for each number.

    ``pieces`` is the split of a line that ``plain_line`` left unchanged but for spaces. A line that matches has the
    same numbers at the same places: a number is matched as a whole, as in a split, and the text before it cannot hold
    the beginning of another one. None if that is not certain.
    """
    texts = pieces[::2]
    if len(texts) - 1 > _MAX_NUMBERS or any(sign in text for text in texts for sign in BAR_SIGNS):
        return None
    for at, text in enumerate(texts[:-1]):
        is_alone = at > 0 and len(text) == 1  # behind a number, where no sign begins one
        if text[-1:] in ("+", "-") and text and not is_alone and not _BLOCKS_A_SIGN.search(text):
            return None
        if at > 0 and text.startswith("T"):
            return None  # a date, which ``plain_line`` changes
    parts = [_spaced(texts[0])]
    for group, text in enumerate(texts[1:], 1):
        parts += [_whole(group), _spaced(text)]
    return re.compile("[ \\t]*" + "".join(parts) + "[ \\t]*")


def _spaced(text: str) -> str:
    """Return the expression of a text in which each space stands for any number of spaces and tabs."""
    return "[ \\t]+".join(map(re.escape, text.split(" ")))


def _whole(group: int) -> str:
    """Return an expression that matches a number as a whole or not at all."""
    return f"((?>{NUMBER_TOKEN}))" if sys.version_info >= (3, 11) else f"(?=({NUMBER_TOKEN}))\\{group}"
