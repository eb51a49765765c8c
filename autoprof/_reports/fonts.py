"""Find a font for a text. matplotlib's own has no CJK: an installed one is found, or names become ASCII."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
UNUSABLE: Final = ("Last Resort", "LastResort", "Adobe Blank")
"""Fonts whose glyphs are placeholders for every character."""
_SCANNED: Final = 400
"""The most fonts opened in the search: on a machine with thousands the end of a run must not wait."""
_SHORT: Final = 2
"""Characters that are written as code points in place; more of them would leave no room for the rest of a name."""
_DECODED: Final = 6
"""Tags that the note explains."""


@dataclass(frozen=True, slots=True)
class Script:
    """The font families for some names, the characters that are in none of them, and a tag for each run of these."""

    families: tuple[str, ...]
    missing: frozenset[str] = frozenset()
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def note(self) -> str:
        """The note about characters without a font; empty where there are none."""
        if not self.missing:
            return ""
        tagged = [f"{tag} {_code_points(run)}" for run, tag in list(self.tags.items())[:_DECODED]]
        tagged += ["…"] if len(self.tags) > _DECODED else []
        meaning = f": {', '.join(tagged)}." if tagged else "."
        return f"No installed font has some characters; they are written as names or code points{meaning}"

    def show(self, text: str) -> str:
        """Return the text in characters that the fonts have: the others as code points, emoji by name, or as a tag."""
        shown = safe(text)
        return re.sub(_runs_of(self.missing), lambda run: self._written(run[0]), shown) if self.missing else shown

    def _written(self, run: str) -> str:
        return self.tags.get(run) or _plain(run)


def script_for(names: Iterable[str]) -> Script:
    """Return the fonts for these names; ASCII needs no search."""
    shown = [safe(name) for name in names]
    characters = sorted(set("".join(shown)))
    if all(char.isascii() for char in characters):
        return Script((BASE,))
    families, missing = _search("".join(characters))
    return Script(families, missing, _tags(shown, missing))


def _tags(names: Iterable[str], missing: frozenset[str]) -> dict[str, str]:
    if not missing:
        return {}
    runs = (run for name in names for run in re.findall(_runs_of(missing), name))
    long = dict.fromkeys(run for run in runs if len(run) > _SHORT)
    return {run: f"{{{number}}}" for number, run in enumerate(long, 1)}


def _runs_of(characters: Iterable[str]) -> str:
    return f"[{re.escape(''.join(sorted(characters)))}]+"


@lru_cache(maxsize=8)
def _search(characters: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the fonts for these characters, and the characters that no font has."""
    from matplotlib.font_manager import FontProperties, findfont, fontManager

    families = [BASE]
    missing = _add(families, _without(findfont(FontProperties(family=BASE)), characters), fontManager.ttflist)
    if missing and (new := _installed_since()):
        missing = _add(families, missing, new)
    return tuple(families), frozenset(missing)


def _add(families: list[str], missing: str, entries: Iterable[FontEntry]) -> str:
    """Append the fonts that have some of the missing characters; return the others."""
    fonts = {font.name: font.fname for font in entries if _is_usable(font)}
    order: list[str] = [name for name in PREFERRED if name in fonts]
    order += [name for name in fonts if name not in PREFERRED][: _SCANNED - len(order)]
    for name in order:
        if not missing:
            break
        left = _without(fonts[name], missing)
        if len(left) < len(missing):
            families.append(name)
            missing = left
    return missing


@lru_cache(maxsize=1)
def _installed_since() -> tuple[FontEntry, ...]:
    """Register the fonts that were installed after matplotlib wrote its list, which it never renews; return them."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    known = {font.fname for font in fontManager.ttflist}
    before = len(fontManager.ttflist)
    for path in sorted(set(findSystemFonts()) - known)[:_SCANNED]:
        try:
            fontManager.addfont(path)
        except (OSError, RuntimeError):  # a font that cannot be read
            continue
    return tuple(fontManager.ttflist[before:])


def _is_usable(font: FontEntry) -> bool:
    return font.style == "normal" and not font.name.startswith(UNUSABLE) and "Color Emoji" not in font.name


def _without(path: str, characters: str) -> str:
    """Return the characters that the font lacks."""
    from matplotlib.ft2font import FT2Font

    try:
        has = FT2Font(path).get_charmap()
    except (OSError, RuntimeError):  # a font that cannot be read has no characters
        return characters
    return "".join(char for char in characters if ord(char) not in has)


def _plain(run: str) -> str:
    return "".join(map(_named, run))


def _named(char: str) -> str:
    """Return an emoji's name in brackets, another character's code point."""
    if unicodedata.category(char) == "So" and (name := unicodedata.name(char, "")):
        return f"({name.lower()})"
    return _code_points(char)


def _code_points(run: str) -> str:
    return "".join(f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}" for char in run)
