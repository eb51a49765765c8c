"""One log file as lines: compressed or not, in any encoding, read in blocks of bounded size."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, cast

from ..errors import OutputError

BLOCK_BYTES: Final = 2 << 20
"""Bytes read at a time. With the database's copies of a block this bounds the memory of reading."""
SAMPLE_BYTES: Final = 192 << 10
"""Bytes of the sample from each of three places: beginning, middle and end."""
MAX_LINE_BYTES: Final = 64 << 20
"""Longer lines are split. No record is as long, and the whole line would have to be in memory."""
_COMPRESSIONS: Final[tuple[tuple[bytes, Callable[..., Any]], ...]] = (
    (b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\x00", lzma.open),
)  # fmt: skip
_MIN_UTF16: Final = 16
_MIN_ZEROS: Final = 64
"""Zero bytes at the beginning that are a hole: a sparse file."""
_MAX_ZEROS: Final = 1 << 30
_CURSOR: Final = re.compile(r"(?:\x1b\[\d*[ABEF])+")
"""Movements to another line, as those of nested progress bars."""
_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip


@dataclass
class LogFile:
    """One log file. A byte order mark decides the encoding; else each line is UTF-8, GB 18030 or Latin-1.

    Lines are decoded one by one because a log may be written by several programs. Raises ``OutputError`` if the file
    cannot be read.
    """

    path: Path
    on_progress: Callable[[int], None] = lambda _bytes: None
    """Called after each block with the number of bytes read from disk."""
    copy: Path | None = None
    """The copy of a pipe, which is read instead of ``path``."""
    non_utf8_lines: int = field(default=0, init=False)
    is_truncated: bool = field(default=False, init=False)
    """Valid after ``blocks`` has ended: the compressed file ends in the middle."""
    is_damaged: bool = field(default=False, init=False)
    """The compressed data contradict their checksum, or cannot be decompressed: no value of them is certain."""
    ends_with_newline: bool = field(default=True, init=False)
    """Valid after ``blocks`` has ended. False: the last line may be cut off."""

    def sample(self) -> list[str]:
        """Return lines from the beginning, the middle and the end; from a compressed file only the beginning."""
        with self._open() as file:
            head = _first_bytes(file, SAMPLE_BYTES)
            self._follow(file)
            encoding = _marked_encoding(head)
            parts = [head]
            if isinstance(file, io.BufferedReader) and encoding is None:
                size = os.fstat(file.fileno()).st_size
                places = {
                    max(size // 2, SAMPLE_BYTES) if size > 3 * SAMPLE_BYTES else SAMPLE_BYTES,
                    max(size - SAMPLE_BYTES, SAMPLE_BYTES),
                }
                for place in sorted(place for place in places if place < size):
                    file.seek(place)
                    parts.append(file.read(SAMPLE_BYTES).partition(b"\n")[2])
        if encoding is not None:
            return _clean(head.decode(encoding, "ignore")).split("\n")
        return [line for part in parts for line in _clean(self._decode(part, count=False)).split("\n")]

    def is_text(self) -> bool:
        """Return whether the file can be a log: not empty, and few of its first bytes are zero."""
        with self._open() as file:
            head = _first_bytes(file, 4096)
            self._follow(file)
        return bool(head.strip()) and (_marked_encoding(head) is not None or head.count(0) <= len(head) // 100)

    def text(self) -> str:
        """Return the whole file."""
        return "\n".join(self.blocks())

    def lines(self) -> Iterator[str]:
        """Yield the lines without their ends."""
        for block in self.blocks():
            yield from block.split("\n")

    def blocks(self) -> Iterator[str]:
        """Yield blocks of whole lines, without terminal colours; line ends are ``\\n``, the last one is removed."""
        for raw in self._raw_blocks():
            yield _clean(self._decode(raw)).removesuffix("\n")

    def _raw_blocks(self) -> Iterator[bytes]:
        """Yield blocks of whole lines as UTF-8, or in the file's own encoding if it has no byte order mark."""
        with self._open() as file:
            head = file.peek(4) if isinstance(file, io.BufferedReader) else b""
            block = file.read(BLOCK_BYTES)
            encoding = _marked_encoding(block or head)
            decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding else None
            rest, reported = b"", 0
            while block:
                self._follow(file)
                descriptor = file.fileno() if hasattr(file, "fileno") else None
                position = os.lseek(descriptor, 0, os.SEEK_CUR) if descriptor is not None else reported + len(block)
                self.on_progress(position - reported)
                reported = position
                if decoder is not None:
                    block = decoder.decode(block).encode("utf-8").removeprefix(codecs.BOM_UTF8)
                rest += block
                end = rest.rfind(b"\n")
                if end < 0:
                    end = rest[:-1].rfind(b"\r")  # the last byte may be the first half of \r\n
                if end < 0 and len(rest) > MAX_LINE_BYTES:
                    end = len(rest) - 1
                if end >= 0:
                    yield rest[: end + 1]
                    rest = rest[end + 1 :]
                block = file.read(BLOCK_BYTES)
            self._follow(file)
            self.ends_with_newline = not rest
            if rest:
                yield rest

    def _open(self) -> IO[bytes]:
        try:
            path = self.copy or self.path
            with open(path, "rb") as file:
                start = file.read(6)
            for magic, opener in _COMPRESSIONS:
                if start.startswith(magic):
                    opened: Any = _Truncated(opener(path, "rb"))
                    return cast("IO[bytes]", opened)
            return open(path, "rb")
        except OSError as error:
            raise OutputError(f"{self.path}: cannot be read: {error.strerror}; allowed: a readable file") from error

    def _follow(self, file: Any) -> None:
        """Note how the reading of a compressed file has ended."""
        if isinstance(file, _Truncated):
            self.is_truncated |= file.is_truncated
            self.is_damaged |= file.is_damaged

    def _decode(self, raw: bytes, count: bool = True) -> str:
        raw = raw.removeprefix(codecs.BOM_UTF8)
        try:
            return raw.decode("utf-8").replace("\0", "")
        except UnicodeDecodeError:
            lines = []
            for line in raw.split(b"\n"):
                try:
                    lines.append(line.decode("utf-8"))
                except UnicodeDecodeError:
                    self.non_utf8_lines += count
                    lines.append(_decode_other(line))
            return "\n".join(lines).replace("\0", "")


class _Truncated:
    """A compressed file that ends where its data end: a run that was killed leaves half a stream."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.is_truncated = False
        self.is_damaged = False

    def read(self, size: int) -> bytes:
        """Return at most ``size`` bytes; fewer if the file ends before."""
        parts: list[bytes] = []
        while size > 0 and not self.is_truncated:
            try:
                part = self._file.read1(size) if hasattr(self._file, "read1") else self._file.read(size)
            except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
                self.is_truncated = True
                has_other_bytes = isinstance(error, gzip.BadGzipFile) and "Not a gzipped" in str(error)
                self.is_damaged = not isinstance(error, EOFError) and not has_other_bytes
                break
            if not part:
                break
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def __enter__(self) -> _Truncated:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _first_bytes(file: IO[bytes], size: int) -> bytes:
    """Return the first bytes of a file behind leading zeros: those of a log that was cut while it was written."""
    head = file.read(size)
    skipped = len(head)
    while len(head) >= _MIN_ZEROS and not head.strip(b"\0") and skipped < _MAX_ZEROS:
        head = file.read(max(size, _MIN_ZEROS))
        skipped += len(head)
    if not head.startswith(b"\0" * _MIN_ZEROS):
        return head
    head = head.lstrip(b"\0")
    return head + file.read(size - len(head)) if len(head) < size else head


def _marked_encoding(head: bytes) -> str | None:
    """Return the encoding of a byte order mark, or of UTF-16 without one; None for UTF-8 and others."""
    sample = head[:4096]
    if len(sample) >= _MIN_UTF16 and not sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        half = len(sample) // 2  # digits, spaces and line ends have a zero byte, also among Chinese characters
        if sample[1::2].count(0) > 0.25 * half and sample[::2].count(0) < 0.02 * half:
            return "utf-16-le"
        if sample[::2].count(0) > 0.25 * half and sample[1::2].count(0) < 0.02 * half:
            return "utf-16-be"
    for mark, encoding in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return None if encoding == "utf-8" else encoding
    return None


def _clean(text: str) -> str:
    """Unify line ends; remove terminal colours, cursor movements and byte order marks (of concatenated files)."""
    text = text.replace("\ufeff", "") if "\ufeff" in text else text
    text = text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
    return _ANSI.sub("", _CURSOR.sub("\n", text)) if "\x1b" in text else text


def _decode_other(line: bytes) -> str:
    try:
        return line.decode("gb18030")
    except UnicodeDecodeError:
        return line.decode("latin-1")
