"""An output of a notebook's cell that is replaced in place."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from html import escape
from typing import Any, Final

WIDTH: Final = 96
"""Cells of the panel: a cell's output is about as wide."""


class NotebookOutput:
    """The output of one session. A session that goes on in another cell gets an output there.

    IPython is never imported here: where it is not loaded, the program runs in no notebook.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._id = ""
        self._cell: object = None

    @classmethod
    def of_this_process(cls) -> NotebookOutput | None:
        """Return an output where this process is a notebook's kernel, else None."""
        get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
        shell = None if get_ipython is None else get_ipython()
        return None if getattr(shell, "kernel", None) is None else cls(shell)

    def draw(self, lines: Sequence[str]) -> None:
        """Replace the shown output by lines of text."""
        text = "\n".join(lines)
        self.show(
            text,
            f'<pre style="font-family: monospace; line-height: 1.25; margin: 0; white-space: pre">{escape(text)}</pre>',
        )

    def show(self, text: str, html: str) -> None:
        """Replace the shown output by the HTML; the text is for outputs without HTML."""
        from IPython.display import display, update_display

        bundle = {"text/plain": text, "text/html": html}
        cell = getattr(self._shell, "execution_count", None)
        if self._id and cell == self._cell:
            update_display(bundle, display_id=self._id, raw=True)
        else:
            self._id, self._cell = f"autoprof-{secrets.token_hex(8)}", cell
            display(bundle, display_id=self._id, raw=True)
