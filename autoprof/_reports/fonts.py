"""Find a font for a text. matplotlib's own has no CJK: an installed one is found, or characters are escaped."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from .text import safe

if TYPE_CHECKING:
    from matplotlib.font_manager import FontEntry

BASE: Final = "DejaVu Sans"
"""The font that comes with matplotlib, so it is always there."""
PREFERRED: Final = (
    "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Noto Sans CJK JP", "Noto Sans JP", "PingFang SC",
    "Hiragino Sans GB", "Microsoft YaHei", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "SimHei", "Droid Sans Fallback",
    "Arial Unicode MS",
)  # fmt: skip
PLACEHOLDERS: Final = ("Last Resort", "LastResort", "Adobe Blank")
"""Fonts whose glyphs are placeholders for every character."""
_SCANNED: Final = 400
"""The most fonts opened in the search: on a machine with thousands the end of a run must not wait."""


@dataclass(frozen=True, slots=True)
class Script:
    """The font families for a text, and the characters that are in none of them."""

    families: tuple[str, ...]
    missing: frozenset[str] = frozenset()

    @property
    def note(self) -> str:
        """The note about escaped characters; empty where there are none."""
        if not self.missing:
            return ""
        return r"No installed font has some characters of these names: they are written as code points (\u65f6)."

    def show(self, text: str) -> str:
        """Return the text with an escape for every character that no font has."""
        shown = safe(text)
        if not self.missing:
            return shown
        return "".join(_escape(char) if char in self.missing else char for char in shown)


def script_for(text: str) -> Script:
    """Return the fonts for this text; ASCII needs no search."""
    shown = safe(text)
    if shown.isascii():
        return Script((BASE,))
    return _search("".join(sorted(set(shown))))


@lru_cache(maxsize=8)
def _search(characters: str) -> Script:
    from matplotlib.font_manager import FontProperties, findfont, fontManager

    missing = _without(findfont(FontProperties(family=BASE)), characters)
    families = [BASE]
    fonts = {font.name: font.fname for font in fontManager.ttflist if _is_usable(font)}
    order: list[str] = [name for name in PREFERRED if name in fonts]
    order += [name for name in fonts if name not in PREFERRED][: _SCANNED - len(order)]
    for name in order:
        if not missing:
            break
        left = _without(fonts[name], missing)
        if len(left) < len(missing):
            families.append(name)
            missing = left
    return Script(tuple(families), frozenset(missing))


def _is_usable(font: FontEntry) -> bool:
    return font.style == "normal" and not font.name.startswith(PLACEHOLDERS)


def _without(path: str, characters: str) -> str:
    """Return the characters that the font lacks."""
    from matplotlib.ft2font import FT2Font

    try:
        has = FT2Font(path).get_charmap()
    except (OSError, RuntimeError):  # a font that cannot be read has no characters
        return characters
    return "".join(char for char in characters if ord(char) not in has)


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"
