"""Any text with losses: chosen only if no line of the file has a step."""

from __future__ import annotations

from typing import Final

from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="text without steps", priority=-20, record="(?i)loss|损失|epoch|step|iter|轮|步", weight=0.05, needs_step=False
)
