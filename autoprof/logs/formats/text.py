"""Any text with names and numbers, in lines that have a step."""

from __future__ import annotations

from typing import Final

from ._text import TextFormat

FORMAT: Final = TextFormat(name="text", priority=-10, record=r"\d", weight=0.9, joins_lines=True)
