"""Take the pictures of the README from a real run: ``make pictures`` runs it.

``panel.svg`` is the screen of a terminal in which ``autoprof demo --size tiny`` trains. ``report-light.png`` and
``report-dark.png`` are the page of the same run in a headless Chromium.
"""

from __future__ import annotations

import base64
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyte
from PIL import Image

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "docs/pictures"
COLUMNS, ROWS = 84, 24
WIDTH, HEIGHT = 1200, 780
MAX_BYTES: Final = 150_000
COLORS: Final = {
    "default": "#d8dee9", "black": "#8a94a6", "red": "#f0808a", "green": "#8fd694", "brown": "#ebcb6b",
    "blue": "#7eb0f2", "magenta": "#cf9ee0", "cyan": "#6fd3d8", "white": "#f2f4f8",
}  # fmt: skip
"""The eight colours of the terminal, readable on ``BACKGROUND``; a code host shows the picture in light and in dark."""
BACKGROUND: Final = "#1b2130"
CELL: Final = (8.4, 18.0)
MARGIN: Final = 16


def record_demo(output: Path) -> pyte.Screen:
    """Run the demo in a terminal of its own; return the screen late in the training."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    environment = {
        name: value for name, value in environment.items() if name not in ("NO_COLOR", "COLUMNS", "LINES", "CI")
    }
    command = [sys.executable, "-m", "autoprof", "demo", "--size", "tiny", "--steps", "200", "--output", str(output)]
    demo = subprocess.Popen(command, stdin=side, stdout=side, stderr=side, env=environment, close_fds=True)
    os.close(side)
    taken = None
    while True:
        try:
            data = os.read(main, 65536)
        except OSError:
            break
        if not data:
            break
        stream.feed(data)
        text = "\n".join(screen.display)
        whole = "verdict" in text and "└─ Total" in text and "trained" not in text
        if whole and (taken is None or "figures of" not in text):
            taken = _copy(screen)
    os.close(main)
    assert demo.wait() == 0, "the demo failed"
    assert taken is not None, "the panel was never seen: " + "\n".join(screen.display)
    return taken


def _copy(screen: pyte.Screen) -> pyte.Screen:
    """Return a screen with the same characters."""
    copy = pyte.Screen(screen.columns, screen.lines)
    for row in range(screen.lines):
        for column in range(screen.columns):
            copy.buffer[row][column] = screen.buffer[row][column]
    return copy


def as_svg(screen: pyte.Screen) -> str:
    """Draw a screen: a run of characters of one style is one text element with its exact length."""
    rows = [row for row in range(screen.lines) if screen.display[row].strip()]
    width = round(CELL[0] * screen.columns + 2 * MARGIN)
    height = round(CELL[1] * len(rows) + 2 * MARGIN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        "<title>The live panel of autoprof in a terminal</title>",
        "<style>text{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>',
    ]
    for line, row in enumerate(rows):
        cells = [screen.buffer[row][column] for column in range(screen.columns)]
        start = 0
        while start < len(cells):
            style = (cells[start].fg, cells[start].bold)
            end = start
            while end < len(cells) and (cells[end].fg, cells[end].bold) == style:
                end += 1
            text = "".join(cell.data for cell in cells[start:end])
            if text.strip():
                left = text[: len(text) - len(text.lstrip())]
                x = MARGIN + CELL[0] * (start + len(left))
                y = MARGIN + CELL[1] * (line + 0.75)
                text = text.strip()
                color = COLORS.get(
                    style[0], f"#{style[0]}" if re.fullmatch("[0-9a-f]{6}", style[0]) else COLORS["default"]
                )
                bold = ' font-weight="bold"' if style[1] else ""
                parts.append(
                    f'<text x="{x:.1f}" y="{y:.1f}" textLength="{CELL[0] * len(text):.1f}" fill="{color}"{bold}>'
                    f"{escape(text)}</text>"
                )
            start = end
    return "\n".join([*parts, "</svg>"]) + "\n"


def take_report(run: Path, folder: Path) -> None:
    """Write the run's page and take it in light and in dark."""
    sys.path.insert(0, str(ROOT))
    from docs.browser import Browser

    page = folder / "report.html"
    command = [sys.executable, "-m", "autoprof", "report", str(run), "--no-open", "-o", str(page)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    browser = Browser(folder / "profile", WIDTH, HEIGHT)
    try:
        for theme in ("light", "dark"):
            feature = [{"name": "prefers-color-scheme", "value": theme}]
            browser.send("Emulation.setEmulatedMedia", features=feature)
            browser.open(page)
            picture = browser.send("Page.captureScreenshot", format="png")
            _write(f"report-{theme}.png", _with_a_palette(base64.b64decode(picture["data"])))
    finally:
        browser.close()


def _with_a_palette(picture: bytes) -> bytes:
    """Return a PNG with 128 colours, which is a third of the size."""
    file = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(
        file, "png", optimize=True
    )
    return file.getvalue()


def _write(name: str, data: bytes) -> None:
    assert len(data) <= MAX_BYTES, f"{name} has {len(data)} bytes, more than {MAX_BYTES}"
    (FOLDER / name).write_bytes(data)
    print(f"docs/pictures/{name}: {len(data) / 1000:.0f} kB", flush=True)


def main() -> None:
    """Train the demo once and take all pictures of that run."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        screen = record_demo(folder / "runs")
        _write("panel.svg", as_svg(screen).encode())
        take_report(next((folder / "runs").iterdir()), folder)


if __name__ == "__main__":
    main()
