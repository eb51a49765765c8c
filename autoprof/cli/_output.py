"""The standard output of all commands."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any


def print_json(data: Any) -> None:
    """Print data as indented JSON."""
    print(json.dumps(data, indent=1, ensure_ascii=False))


def terminal() -> tuple[int, str]:
    """Return the width of the terminal in cells, and the encoding of the standard output."""
    return shutil.get_terminal_size().columns, getattr(sys.stdout, "encoding", None) or "ascii"
