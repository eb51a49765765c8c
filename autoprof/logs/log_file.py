"""One log file as lines: compressed or not, in any encoding, read in blocks of bounded size."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from ..errors import OutputError

STANDARD_INPUT: Final = Path("-")
"""The path that means standard input. A file of this name is ``./-``."""
_COMPRESSIONS: Final[tuple[tuple[bytes, Callable[..., Any]], ...]] = (
    (b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\x00", lzma.open),
)  # fmt: skip
_CURSOR: Final = re.compile(r"(?:\x1b\[\d*[ABEF])+")
"""Movements to another line, as those of nested progress bars."""
_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip


def is_pipe(path: Path) -> bool:
    """Return whether a path can be read only once: standard input, a FIFO, ``/dev/fd/63`` of a process substitution."""
    return path == STANDARD_INPUT or (path.exists() and not path.is_file() and not path.is_dir())


class LogFile:
    """One log file. A byte order mark decides the encoding; else each line is UTF-8, GB 18030 or Latin-1.

    Lines are decoded one by one because a log may be written by several programs. A pipe is copied to a temporary
    file, because a log is read more than once. Raises ``OutputError`` if the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.non_utf8_lines = 0
        self.is_truncated = False
        """Valid after ``blocks`` has ended: the compressed file ends in the middle."""
        self.is_damaged = False
        """The compressed data contradict their checksum, or cannot be decompressed: no value of them is certain."""
        self.ends_with_newline = True
        """Valid after ``blocks`` has ended. False: the last line may be cut off."""

    @property
    def name(self) -> str:
        """The name in reports and errors."""
        return "standard input" if self.path == STANDARD_INPUT else str(self.path)

    @cached_property
    def _head(self) -> bytes:
        with self._open() as file:
            return self._read(file, 1 << 20).lstrip(b"\0")

    def sample(self) -> list[str]:
        """Return the lines at the beginning."""
        encoding = _marked_encoding(self._head)
        text = self._head.decode(encoding, "ignore") if encoding else self._decode(self._head)
        self.non_utf8_lines = 0
        return _clean(text).split("\n")

    def is_text(self) -> bool:
        """Return whether the file can be a log: not empty, and few of its first bytes are zero."""
        head = self._head
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
        block_bytes = 2 << 20
        with self._open() as file:
            rest = self._read(file, block_bytes)
            encoding = _marked_encoding(rest)
            decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding else None
            block, rest = rest, b""
            while block:
                rest += decoder.decode(block).encode("utf-8") if decoder is not None else block
                end = rest.rfind(b"\n")
                if end < 0:
                    end = rest[:-1].rfind(b"\r")  # the last byte may be the first half of \r\n
                # Longer lines are split, so that a file without line ends does not fill the memory.
                if end < 0 and len(rest) > 64 << 20:
                    end = len(rest) - 1
                if end >= 0:
                    yield _clean(self._decode(rest[: end + 1])).removesuffix("\n")
                    rest = rest[end + 1 :]
                block = self._read(file, block_bytes)
        self.ends_with_newline = not rest or rest.endswith((b"\n", b"\r"))
        if rest:
            yield _clean(self._decode(rest)).removesuffix("\n")

    @cached_property
    def _copy(self) -> Any:
        """The temporary file with the bytes of a pipe; None for a file. It is removed with this object."""
        if not is_pipe(self.path):
            return None
        copy = tempfile.NamedTemporaryFile(prefix="autoprof-")  # noqa: SIM115
        is_standard = self.path == STANDARD_INPUT
        with open(0 if is_standard else self.path, "rb", closefd=not is_standard) as pipe:
            shutil.copyfileobj(pipe, copy)
        copy.flush()
        return copy

    def _open(self) -> Any:
        try:
            place = self.path if self._copy is None else self._copy.name
            with open(place, "rb") as file:
                start = file.read(8)
            opener = next((opener for magic, opener in _COMPRESSIONS if start.startswith(magic)), open)
            return opener(place, "rb")
        except OSError as error:
            raise OutputError(f"{self.name}: cannot be read: {error.strerror}; allowed: a readable file") from error

    def _read(self, file: Any, size: int) -> bytes:
        """Return at most ``size`` bytes; of a compressed file that ends in the middle those before its end."""
        parts: list[bytes] = []
        while size > 0:
            try:
                part = file.read1(size)
            except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
                if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile) and error.errno is not None:
                    raise OutputError(
                        f"{self.path}: cannot be read: {error.strerror}; allowed: a readable file"
                    ) from error
                self.is_truncated = True
                self.is_damaged |= not isinstance(error, EOFError) and "Not a gzipped" not in str(error)
                break
            if not part:
                break
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _decode(self, raw: bytes) -> str:
        try:
            return raw.decode("utf-8").replace("\0", "")
        except UnicodeDecodeError:
            lines = []
            for line in raw.split(b"\n"):
                try:
                    lines.append(line.decode("utf-8"))
                except UnicodeDecodeError:
                    self.non_utf8_lines += 1
                    lines.append(_decode_other(line))
            return "\n".join(lines).replace("\0", "")


def _marked_encoding(head: bytes) -> str | None:
    """Return the encoding of a byte order mark; None for UTF-8 and others."""
    return next((encoding for mark, encoding in _BYTE_ORDER_MARKS if head.startswith(mark)), None)


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
