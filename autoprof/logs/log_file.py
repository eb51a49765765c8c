"""One log file as lines: compressed or not, in any encoding."""

from __future__ import annotations

import bz2
import codecs
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from ..errors import OutputError

STANDARD_INPUT: Final = Path("-")
"""The path that means standard input. A file of this name is ``./-``."""
_COMPRESSIONS: Final[dict[bytes, Callable[[], Any]]] = {
    b"\x1f\x8b": partial(zlib.decompressobj, 31), b"BZh": bz2.BZ2Decompressor, b"\xfd7zXZ\x00": lzma.LZMADecompressor,
}  # fmt: skip
_WIDE_ENCODINGS: Final = {
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
"""Encodings by their byte order mark."""
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
        self.is_truncated = False
        """The compressed file ends in the middle."""
        self.is_damaged = False
        """The compressed data contradict their checksum, or cannot be decompressed: no value of them is certain."""
        is_standard = path == STANDARD_INPUT
        try:
            with open(0 if is_standard else path, "rb", closefd=not is_standard) as file:
                data = self._content(iter(partial(file.read, 1 << 20), b""))
        except OSError as error:
            raise OutputError(f"{self.name}: cannot be read: {error.strerror}; allowed: a readable file") from error
        text = "" if self.is_damaged else self._decode(data)
        self.lines = _INVISIBLE.sub("", _LINE_ENDS.sub("\n", text)).split("\n")
        """The lines without their ends and without terminal colours."""
        self.cut_line = self.lines.pop().rstrip()
        """The last line, if it has no end and may be cut."""
        if self.cut_line.endswith(("}", "]")):
            self.lines.append(self.cut_line)
        elif self.cut_line:
            self.notes.append("the file ends within a line, which may be cut and is not read")
        if self.is_truncated:
            self.notes.append("the compressed file ends in the middle: read up to there")

    def _content(self, pieces: Iterator[bytes]) -> bytes:
        """Return the content, decompressed; nothing of a file that begins with many zeros, which is no text."""
        first = next(pieces, b"")
        make = next((make for magic, make in _COMPRESSIONS.items() if first.startswith(magic)), None)
        whole = chain([first], pieces)
        parts: list[bytes] = []
        for piece in whole if make is None else self._decompress(whole, make):
            head = piece.lstrip(b"\0")
            if not parts and head.count(0) > len(head) // 100 and not head.startswith(tuple(_WIDE_ENCODINGS)):
                return b""
            parts.append(piece)
        return b"".join(parts).lstrip(b"\0")

    def _decompress(self, pieces: Iterator[bytes], make: Callable[[], Any]) -> Iterator[bytes]:
        """Yield the decompressed data of one or several members; of a file that is cut those before the cut."""
        member = make()
        try:
            for piece in pieces:
                rest = piece
                while rest:
                    member = make() if member.eof else member
                    yield member.decompress(rest)
                    rest = member.unused_data if member.eof else b""
        except (OSError, zlib.error, lzma.LZMAError) as error:
            if getattr(error, "errno", None) is not None:
                raise
            self.is_damaged = True
        self.is_truncated = not member.eof

    def _decode(self, data: bytes) -> str:
        encoding = next((name for mark, name in _WIDE_ENCODINGS.items() if data.startswith(mark)), "utf-8")
        try:
            return data.decode(encoding, "strict" if encoding == "utf-8" else "replace")
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
