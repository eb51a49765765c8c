"""One log file as lines: compressed or not, in any encoding."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import cached_property, partial
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
_WIDE_ENCODINGS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
"""Byte order marks and their encodings."""


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
        """Valid after ``lines`` has ended: the compressed file ends in the middle."""
        self.is_damaged = False
        """The compressed data contradict their checksum, or cannot be decompressed: no value of them is certain."""
        self.ends_with_newline = True
        """Valid after ``lines`` has ended. False: the last line may be cut off."""

    @property
    def name(self) -> str:
        """The name in reports and errors."""
        return "standard input" if self.path == STANDARD_INPUT else str(self.path)

    @cached_property
    def _head(self) -> list[bytes]:
        """The first mebibyte of lines."""
        head, size = [], 0
        with closing(self._raw_lines()) as lines:
            for line in lines:
                head.append(line)
                size += len(line)
                if size >= 1 << 20:
                    break
        return head

    def sample(self) -> list[str]:
        """Return the lines at the beginning."""
        return [line for raw in self._head for line in self._decode(raw.lstrip(b"\0")).split("\n")]

    def is_text(self) -> bool:
        """Return whether the file can be a log: not empty, and few of its first bytes are zero."""
        head = b"".join(self._head).lstrip(b"\0")
        return bool(head.strip()) and head.count(0) <= len(head) // 100

    def text(self) -> str:
        """Return the whole file."""
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield the lines without their ends and without terminal colours."""
        self.non_utf8_lines = 0
        for raw in self._raw_lines():
            self.ends_with_newline = raw.endswith((b"\n", b"\r"))
            yield from self._decode(raw).split("\n")

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

    def _raw_lines(self) -> Generator[bytes, None, None]:
        """Yield the lines as bytes; of a compressed file that ends in the middle those before its end."""
        # Longer lines are split, so that a file without line ends does not fill the memory.
        longest = 64 << 20
        place = self.path
        try:
            if self._copy is not None:
                place = self._copy.name
            with open(place, "rb") as file:
                start = file.read(8)
            opener = next((opener for magic, opener in _COMPRESSIONS if start.startswith(magic)), open)
            with opener(place, "rb") as file:
                encoding = next((name for mark, name in _WIDE_ENCODINGS if file.peek(4).startswith(mark)), None)
                if encoding is None:
                    yield from iter(partial(file.readline, longest), b"")
                    return
                text = io.TextIOWrapper(file, encoding, "replace")
                yield from (line.encode() for line in iter(partial(text.readline, longest), ""))
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile) and error.errno is not None:
                raise OutputError(f"{self.name}: cannot be read: {error.strerror}; allowed: a readable file") from error
            self.is_truncated = True
            self.is_damaged |= not isinstance(error, EOFError) and "Not a gzipped" not in str(error)

    def _decode(self, raw: bytes) -> str:
        """Decode a line without its end; unify line ends, and remove colours, cursor movements and byte order marks."""
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            self.non_utf8_lines += 1
            try:
                text = raw.decode("gb18030")
            except UnicodeDecodeError:
                text = raw.decode("latin-1")
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        if "\x1b" in text:
            text = _ANSI.sub("", _CURSOR.sub("\n", text))
        return text.replace("\ufeff", "").replace("\0", "").removesuffix("\n")
