"""Strike at any moment: at the n-th line of autoprof's own code that runs, do something (raise a signal)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import autoprof

HOUSE = str(Path(autoprof.__file__).parent)


@cache
def _blocks(path: str) -> dict[int, range]:
    """Return, for each line that holds a ``with``, the lines of its block; for a ``try``, any line."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    blocks = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            blocks[node.lineno] = range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
        elif isinstance(node, ast.Try):
            blocks[node.lineno] = range(sys.maxsize)
    return blocks


class Strike:
    """Trace the block; at the n-th line event in autoprof's files call ``strike``, once. ``lines`` counts them.

    What ``strike`` raises, or makes a signal handler raise, comes out of that line. Lines are closer together than the
    places where Python looks for signals, so this strikes wherever a signal can, and beyond. Left out are the lines of
    a ``try`` and of a ``with`` on the way out of its block: a trace function can raise there and rob the block of its
    end, which no signal can (Python looks for signals after calls, in functions' heads and on the way back in loops).
    Lines in ``struck`` are not counted; the line that is struck is added to it.
    """

    def __init__(
        self,
        at: int,
        strike: Callable[[], object],
        struck: set[tuple[str, int]] | None = None,
    ) -> None:
        self.lines = 0
        self.where = ""
        self._at = at
        self._struck = set() if struck is None else struck
        self._strike = strike
        self._last: dict[FrameType, int] = {}

    def __enter__(self) -> Strike:
        sys.settrace(self._trace)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.settrace(None)
        self._last.clear()

    def _trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        path = frame.f_code.co_filename
        if not path.startswith(HOUSE):
            return None
        if event == "line":
            before, self._last[frame] = self._last.get(frame, 0), frame.f_lineno
            if before in _blocks(path).get(frame.f_lineno, ()):
                return self._trace
            if (path, frame.f_lineno) in self._struck:
                return self._trace
            self.lines += 1
            if self.lines == self._at:
                self._struck.add((path, frame.f_lineno))
                self.where = f"{Path(path).name}:{frame.f_lineno}"
                self._strike()
        return self._trace
