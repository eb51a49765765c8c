"""Lines of a text file whose encoding nobody knows, one at a time, whatever the file holds."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_UTF16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
LONGEST: Final = 1 << 20
"""Bytes of a line that are looked at; what is longer is no line of a log."""


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines without their ends: UTF-16 by its mark, else each line as UTF-8, GB 18030 or Latin-1.

    Files are put together from several sources, so each line is decided by itself: UTF-8 is hardly ever met by chance,
    and Latin-1 takes whatever is left.
    """
    with path.open("rb") as file:
        if file.read(2) in _UTF16:
            with path.open(encoding="utf-16", errors="replace", newline=None) as text:
                yield from (line.rstrip("\n") for line in text)
            return
        file.seek(0)
        while True:
            raw = file.readline(LONGEST)
            if not raw:
                return
            yield _decode(raw.removeprefix(codecs.BOM_UTF8).rstrip(b"\r\n"))


def _decode(raw: bytes) -> str:
    for encoding in ("utf-8", "gb18030"):
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    return raw.decode("latin-1")
