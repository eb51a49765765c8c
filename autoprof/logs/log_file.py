"""One log file as lines: compressed by gzip or not, in any encoding."""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from pathlib import Path
from typing import Final

from ..errors import OutputError

STANDARD_INPUT: Final = Path("-")
"""The path that means standard input. A file of this name is ``./-``."""
_WIDE: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""The byte order marks of UTF-16."""
_LINE_ENDS: Final = re.compile(r"(?:\x1b\[\d*[ABEF])+|\r\n?")
"""Line ends other than a line feed; nested progress bars move the cursor to another line."""
_INVISIBLE: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\ufeff\0]")


class LogFile:
    """One log file. A byte order mark decides the encoding; else each line is UTF-8, GB 18030 or Latin-1.

    A last line without its end may be cut, within a number too: it is not read, unless it ends as a JSON object does.
    Raises ``OutputError`` if the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = "standard input" if path == STANDARD_INPUT else str(path)
        self.notes: list[str] = []
        self.is_damaged = False
        """The compressed data are cut, or contradict their checksum: no value of them is certain."""
        text = self._decode(self._content())
        self.lines = _INVISIBLE.sub("", _LINE_ENDS.sub("\n", text)).split("\n")
        """The lines without their ends and without terminal colours."""
        self.cut_line = self.lines.pop().rstrip()
        """The last line, if it has no end and may be cut."""
        if self.cut_line.endswith(("}", "]")):
            self.lines.append(self.cut_line)
        elif self.cut_line:
            self.notes.append("the file ends within a line, which may be cut and is not read")

    def _content(self) -> bytes:
        """Return the content, decompressed; nothing of a file that begins with many zeros, which is no text."""
        is_standard = self.path == STANDARD_INPUT
        try:
            with open(0 if is_standard else self.path, "rb", closefd=not is_standard) as file:
                data = file.read()
            data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
        except (EOFError, OSError, zlib.error) as error:
            if getattr(error, "errno", None) is None:  # the error of a decompressor
                self.is_damaged = True
                return b""
            reason = getattr(error, "strerror", error)
            raise OutputError(f"{self.name}: cannot be read: {reason}; allowed: a readable file") from error
        data = data.lstrip(b"\0")
        head = data[: 1 << 20]
        is_text = head.count(0) <= len(head) // 100 or head.startswith(_WIDE)
        return data if is_text else b""

    def _decode(self, data: bytes) -> str:
        if data.startswith(_WIDE):
            return data.decode("utf-16", "replace")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            decoded = [_decode_line(line) for line in data.split(b"\n")]
        count = sum(encoding != "utf-8" for _, encoding in decoded)
        self.notes.append(f"lines that are not UTF-8, read as GB 18030 or Latin-1: {count}")
        return "\n".join(text for text, _ in decoded)


def _decode_line(line: bytes) -> tuple[str, str]:
    for encoding in ("utf-8", "gb18030"):
        try:
            return line.decode(encoding), encoding
        except UnicodeDecodeError:
            continue
    return line.decode("latin-1"), "latin-1"
