"""Assemble the page: one HTML file with its style, its scripts and its data, which may load nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from datetime import datetime, timezone
from html import escape
from pathlib import Path
from typing import Any, Final

from ...base.frame import Phase
from ...base.storage.atomic import write_atomic
from ...base.storage.runs import Run
from ...base.summary import Summary
from ...base.version import VERSION
from ...errors import OutputError
from ..figures import phase_color
from .payload import run_payload

SCRIPTS: Final = "data.js", "dom.js", "charts.js", "tree.js", "steps.js", "sections.js", "app.js"
"""The scripts in the order in which they are run; they share one scope."""


def write_page(run: Run, summary: Summary, path: Path | None = None, *, rank: int | None = None) -> Path:
    """Write the page of a run and return its path. Raises ``OutputError`` where the file cannot be written."""
    target = path or run.path / "report.html"
    try:
        write_atomic(target, _render_page(run_payload(run, summary, rank=rank)))
    except OSError as error:
        raise OutputError(f"{target}: cannot be written ({error.strerror}); it must be a file in a folder") from error
    return target


def _render_page(payload: dict[str, Any]) -> str:
    data = {
        "version": VERSION,
        "written": datetime.now(timezone.utc).astimezone().isoformat(timespec="seconds"),
        "colors": {str(phase): phase_color(phase) for phase in Phase},
        "run": payload,
    }
    uplot = "uplot/uPlot.iife.min.js", "uplot/uPlot.min.css"
    styles = [_read(uplot[1]), _read("page.css")]
    own = "\n".join(_read(name) for name in SCRIPTS)
    scripts = [_read(uplot[0]), f'(() => {{\n"use strict";\n{own}\n}})();']
    policy = (
        f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)}; base-uri 'none'; "
        "form-action 'none'"
    )
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return "".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n',
            f"<title>{escape(payload['name'])} · autoprof</title>\n",
            *(f"<style>{style}</style>\n" for style in styles),
            f"</head>\n<body>\n{_read('page.html')}\n",
            f'<script type="application/json" id="data">{_inert(text)}</script>\n',
            *(f"<script>{script}</script>\n" for script in scripts),
            "</body>\n</html>\n",
        ]
    )


def _inert(text: str) -> str:
    """Escape the characters that could end the element of the data, or begin a comment in it."""
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _hashes(texts: Sequence[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii") for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)


def _read(name: str) -> str:
    return (Path(__file__).parent / "assets" / name).read_text(encoding="utf-8")
