"""From a path to lines: folders and patterns, compressed files, any encoding, in blocks of bounded size."""

from __future__ import annotations

import bz2
import codecs
import glob
import gzip
import io
import lzma
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from ..errors import AutoprofError

BLOCK_BYTES: Final = 8 << 20
"""Read at a time; with the engine's copies of it this bounds the memory that reading takes."""
SAMPLE_BYTES: Final = 192 << 10
"""Looked at from the beginning, the middle and the end of a file, to tell what it is."""
MAX_LINE_BYTES: Final = 64 << 20
"""A longer line is cut: no record is as long, and it would have to be held in memory."""
_OPENERS: Final[tuple[tuple[bytes, Callable[..., Any]], ...]] = (
    (b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\x00", lzma.open),
)  # fmt: skip
_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip


@dataclass
class Source:
    """One log file. ``advance`` is told how many bytes of the file on disk were read."""

    path: Path
    advance: Callable[[int], None] = lambda _count: None
    odd_lines: int = field(default=0, init=False)
    whole: bool = field(default=True, init=False)

    def sample(self) -> list[str]:
        """Return lines from the beginning, the middle and the end; of a compressed file only from the beginning."""
        with self._open() as file:
            head = file.read(SAMPLE_BYTES)
            encoding = _encoding(head)
            parts = [head]
            if isinstance(file, io.BufferedReader) and encoding is None:
                size = os.fstat(file.fileno()).st_size
                places = {
                    max(size // 2, SAMPLE_BYTES) if size > 3 * SAMPLE_BYTES else SAMPLE_BYTES,
                    max(size - SAMPLE_BYTES, SAMPLE_BYTES),
                }
                for at in sorted(place for place in places if place < size):
                    file.seek(at)
                    parts.append(file.read(SAMPLE_BYTES).partition(b"\n")[2])
        if encoding is not None:
            return without_colors(_one_end(head.decode(encoding, "ignore"))).split("\n")
        return [
            line for part in parts for line in without_colors(_one_end(self._decode(part, count=False))).split("\n")
        ]

    def is_text(self) -> bool:
        """Say whether the file can be a log at all: it has bytes, and few of the first are zero."""
        with self._open() as file:
            head = file.read(4096)
        return bool(head.strip()) and (_encoding(head) is not None or head.count(0) <= len(head) // 100)

    def text(self) -> str:
        """Return the whole file."""
        return "\n".join(self.blocks()).lstrip("\ufeff")

    def blocks(self) -> Iterator[str]:
        """Yield the file in blocks of whole lines, every line end made ``\\n``, the last one without it."""
        for raw in self._raw_blocks():
            yield without_colors(_one_end(self._decode(raw))).removesuffix("\n")

    def _raw_blocks(self) -> Iterator[bytes]:
        with self._open() as file:
            head = file.peek(4) if isinstance(file, io.BufferedReader) else b""
            first = file.read(BLOCK_BYTES)
            encoding = _encoding(first or head)
            decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding else None
            rest, told = b"", 0
            block = first
            while block:
                raw = file.fileno() if hasattr(file, "fileno") else None
                at = os.lseek(raw, 0, os.SEEK_CUR) if raw is not None else told + len(block)
                self.advance(at - told)
                told = at
                if decoder is not None:
                    block = decoder.decode(block).encode("utf-8").removeprefix(codecs.BOM_UTF8)
                rest += block
                cut = max(rest.rfind(b"\n"), -1)
                if cut < 0:
                    cut = rest[:-1].rfind(b"\r")  # the last may be half of \r\n
                if cut < 0 and len(rest) > MAX_LINE_BYTES:
                    cut = len(rest) - 1
                if cut >= 0:
                    yield rest[: cut + 1]
                    rest = rest[cut + 1 :]
                block = file.read(BLOCK_BYTES)
            self.whole = not rest
            if rest:
                yield rest

    def _open(self) -> IO[bytes]:
        try:
            with open(self.path, "rb") as file:
                start = file.read(6)
            for magic, opener in _OPENERS:
                if start.startswith(magic):
                    opened: IO[bytes] = opener(self.path, "rb")
                    return opened
            return open(self.path, "rb")
        except OSError as error:
            raise AutoprofError(
                f"{self.path}: cannot be read: {error.strerror}; allowed: a file that can be"
            ) from error

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
                    self.odd_lines += count
                    lines.append(_other(line))
            return "\n".join(lines).replace("\0", "")


def find_files(path: str | os.PathLike[str]) -> list[Path]:
    """Return the files that a path, a folder (searched to the bottom, hidden ones left out) or a pattern names."""
    text = os.fspath(path)
    place = Path(text).expanduser()
    if place.is_dir():
        found = [
            Path(folder) / name
            for folder, folders, names in os.walk(place)
            for name in sorted(names)
            if not name.startswith(".")
            and not any(part.startswith(".") for part in Path(folder).relative_to(place).parts)
        ]
        return sorted(found)
    if place.exists():
        return [place]
    found = sorted(Path(name) for name in glob.glob(str(place), recursive=True))
    if not found:
        what = "no file matches this pattern" if glob.has_magic(text) else "there is no such file or folder"
        raise AutoprofError(
            f"{text}: {what}; allowed: a log file, a folder with some, or a pattern such as 'runs/*/log.txt'"
        )
    return [file for entry in found for file in (find_files(entry) if entry.is_dir() else [entry])]


def without_colors(text: str) -> str:
    """Return a text without the colours and the cursor's moves of a terminal."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def _encoding(head: bytes) -> str | None:
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return None if encoding == "utf-8" else encoding
    return None


def _one_end(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _other(line: bytes) -> str:
    try:
        return line.decode("gb18030")
    except UnicodeDecodeError:
        return line.decode("latin-1")
