"""Clean names: made harmless once, at set-up, for every table, log, terminal and folder."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Final

NAME_LIMIT: Final = 200
"""The longest name in characters; a longer one is cut and ends with an ellipsis."""
FILE_NAME_LIMIT: Final = 120
"""The longest file name in UTF-8 bytes; file systems allow 255, which leaves bytes for suffixes."""


def clean_name(name: str) -> str:
    """Return a name for display and storage: visible, at most ``NAME_LIMIT`` characters, never empty.

    ``/`` is kept because it nests names, but the result is not a relative path: empty segments are removed, and the
    dots of ``.`` and ``..`` become underscores. Cleaning a clean name changes nothing.
    """
    segments = (segment.strip() for segment in visible(name).split("/"))
    kept = [_undot(segment) for segment in segments if segment]
    return shorten("/".join(kept), NAME_LIMIT) or "?"


def file_name(name: str) -> str:
    """Return a file name for the name: letters (of any script), digits and ``-._``, not hidden.

    Two names may have the same file name; code that creates files must not overwrite.
    """
    kept = "".join(char if _is_plain(char) else "_" for char in name)
    return (kept.strip(" .") or "_").encode()[:FILE_NAME_LIMIT].decode(errors="ignore").rstrip(".")


def visible(text: str) -> str:
    """Escape every invisible character: controls, terminal escapes, bidi overrides, zero-width characters.

    They become ``\\x1b`` or ``\\u202e``; a lone surrogate becomes U+FFFD. All other characters, CJK included, are kept.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_show, text))


def quoted(text: str, limit: int = 60) -> str:
    """Quote the text for a message: visible, short, with single backslashes."""
    return f"'{shorten(visible(text), limit)}'"


def enumerate_names(names: Iterable[str], most: int = 4) -> str:
    """Return the first names for a person, and how many more there are: ``a, b, c, d and 15 more``."""
    found = list(names)
    more = f" and {len(found) - most} more" if len(found) > most + 1 else ""
    return shorten(visible(", ".join(found[:most] if more else found)), 200) + more


def shorten(text: str, limit: int) -> str:
    """Cut longer text to ``limit`` characters, the last of which is an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _show(char: str) -> str:
    category = unicodedata.category(char)
    if category == "Cs":
        return "\N{REPLACEMENT CHARACTER}"
    if category not in {"Cc", "Cf", "Zl", "Zp"}:
        return char
    code = ord(char)
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return {"\t": "\\t", "\n": "\\n", "\r": "\\r"}.get(char) or (f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}")


def _undot(segment: str) -> str:
    return "_" * len(segment) if segment in (".", "..") else segment


def _is_plain(char: str) -> bool:
    return char in "-._" or unicodedata.category(char)[0] in "LMN"
