"""JSON lines of any tool: an object per line, alone or after other text, and Python's dicts."""

from __future__ import annotations

from typing import Final

from ._json import JsonFormat

FORMAT: Final = JsonFormat(name="jsonl", priority=20)
