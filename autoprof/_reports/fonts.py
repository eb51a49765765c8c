"""Find a font for a text. matplotlib's own has no CJK: an installed one is found, or characters become code points."""

from __future__ import annotations

from collections.abc import Iterable
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


@dataclass(frozen=True, slots=True)
class Script:
    """The font families for some names, and the characters that are in none of them."""

    families: tuple[str, ...]
    missing: frozenset[str] = frozenset()

    @property
    def note(self) -> str:
        """The note about characters without a font; empty where there are none."""
        why = "No installed font has some characters, which are written as code points; Noto Sans CJK has most."
        return why if self.missing else ""

    def show(self, text: str) -> str:
        """Return the text in characters that the fonts have: the others as code points."""
        return "".join(ascii(char)[1:-1] if char in self.missing else char for char in safe(text))


def script_for(names: Iterable[str]) -> Script:
    """Return the fonts for these names; ASCII needs no search."""
    characters = "".join(sorted(set("".join(map(safe, names)))))
    return Script((BASE,)) if characters.isascii() else _search(characters)


@lru_cache(maxsize=8)
def _search(characters: str) -> Script:
    from matplotlib.font_manager import FontProperties, findfont, fontManager

    families, missing = [BASE], _without(findfont(FontProperties(family=BASE)), characters)
    fonts = {font.name: font.fname for font in fontManager.ttflist if _is_usable(font)}
    order: list[str] = [name for name in PREFERRED if name in fonts]
    # The most fonts opened in the search: on a machine with thousands the end of a run must not wait.
    order += [name for name in fonts if name not in PREFERRED][: 400 - len(order)]
    for name in order:
        left = _without(fonts[name], missing) if missing else ""
        if len(left) < len(missing):
            families.append(name)
            missing = left
    return Script(tuple(families), frozenset(missing))


def _is_usable(font: FontEntry) -> bool:
    return (
        font.style == "normal"
        and not font.name.startswith(("Last Resort", "LastResort", "Adobe Blank"))
        and "Color Emoji" not in font.name
    )


def _without(path: str, characters: str) -> str:
    """Return the characters that the font lacks."""
    from matplotlib.ft2font import FT2Font

    try:
        has = FT2Font(path).get_charmap()
    except (OSError, RuntimeError):  # a font that cannot be read has no characters
        return characters
    return "".join(char for char in characters if ord(char) not in has)
