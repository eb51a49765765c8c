"""Any text with names and numbers; lines that tell no step are taken only where no line of the file tells one."""

from __future__ import annotations

from typing import Final

from .text import ANY, TextFormat

TEXT: Final = TextFormat("text", record=ANY, weight=0.9)
TEXT_WITHOUT_STEPS: Final = TextFormat("text without steps", record="(?i)loss|损失", weight=0.05, weak=True)
