"""Read the Chrome trace of ``torch.profiler`` event by event, and cut it to a size."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import quote

from .._storage.atomic import replacing
from ..errors import OutputError

CHUNK: Final = 1 << 20
BEGIN: Final = '"traceEvents"'
BUCKETS: Final = 44
"""Buckets of durations by power of two in nanoseconds, up to five hours."""
KEPT: Final = frozenset({"user_annotation", "gpu_user_annotation", "Trace"})
"""Categories that are never cut: named ranges."""
_SAFE: Final = " !#$&'()*+,-./:;<=>?@[]^_`{|}~"
_PLAIN: Final = re.compile(rf"[\w{re.escape(_SAFE)}]*", re.ASCII)


@dataclass(slots=True)
class Sizes:
    """Bytes of a trace: of events that are never cut, and of the others by duration."""

    fixed: int = 0
    by_length: list[int] = field(default_factory=lambda: [0] * (BUCKETS + 1))

    def add(self, event: dict[str, Any], size: int) -> None:
        """Add the size of one event."""
        bucket = _bucket(event)
        if bucket is None:
            self.fixed += size
        else:
            self.by_length[bucket] += size

    def threshold(self, limit: int) -> int | None:
        """Return the smallest bucket kept within ``limit`` bytes; None if the named ranges are larger."""
        remaining = limit - self.fixed
        if remaining < 0:
            return None
        for bucket in range(BUCKETS, -1, -1):
            remaining -= self.by_length[bucket]
            if remaining < 0:
                return bucket + 1
        return 0


def read_events(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each event of a trace and its text, in bounded memory.

    Raises ``OutputError`` if the file is not a trace or ends in the middle, after yielding the events before it.
    """
    with _open_trace(path) as stream:
        try:
            _head, rest = _find_events(path, stream)
            for event, text, _rest in _decode(stream, rest):
                yield event, text
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise OutputError(f"{path}: the compressed trace ends in the middle or is damaged") from error


def _open_trace(path: Path) -> IO[str]:
    """Open a trace, compressed by gzip or not."""
    with path.open("rb") as file:
        is_compressed = file.read(2) == b"\x1f\x8b"
    if is_compressed:
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    return path.open(encoding="utf-8", errors="replace")


def encode_name(name: str) -> str:
    """Percent-encode a name that Kineto cannot write; ``rewrite`` restores it.

    Kineto does not escape quotes in its JSON and drops characters outside ASCII.
    """
    return name if _PLAIN.fullmatch(name) else quote(name, safe=_SAFE)


def rewrite(path: Path, threshold: int, names: Mapping[str, str]) -> int:
    """Rewrite the trace with real ``names`` and without events below a bucket of ``Sizes``.

    Return the upper limit of the removed durations in nanoseconds. Events without a duration (arrows, memory) are
    removed first; named ranges stay.
    """
    with (
        replacing(path) as draft,
        path.open(encoding="utf-8", errors="replace") as stream,
        draft.open("w", encoding="utf-8") as out,
    ):
        head, rest = _find_events(path, stream)
        out.write(head)
        between, rest_text = "\n", ""
        for event, text, after in _decode(stream, rest):
            rest_text = after
            bucket = _bucket(event)
            if bucket is None or bucket >= threshold:
                real = names.get(event.get("name", ""))
                out.write(between + (json.dumps({**event, "name": real}, ensure_ascii=False) if real else text))
                between = ",\n"
        out.write("\n]" + (rest_text[1:] + stream.read() if rest_text.startswith("]") else "}"))
    return 0 if threshold <= 1 else int(2 ** (threshold - 1))


def _find_events(path: Path, stream: IO[str]) -> tuple[str, str]:
    """Return the text up to the list of events, and the text read after it."""
    text = ""
    while True:
        chunk = stream.read(CHUNK)
        text += chunk
        at = text.find(BEGIN)
        start = text.find("[", at) if at >= 0 else -1
        if start >= 0:
            return text[: start + 1], text[start + 1 :]
        if not chunk or len(text) > 64 * CHUNK:
            raise OutputError(f"{path}: not a Chrome trace; it must contain {BEGIN}")


def _decode(stream: IO[str], text: str) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield each event, its text, and for the last one the rest. Raises ``OutputError`` if the file ends early."""
    decoder = json.JSONDecoder(strict=False)
    held: tuple[dict[str, Any], str] | None = None
    at = 0
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if at < len(text) and text[at] == "]":
            if held is not None:
                yield *held, text[at:]
            return
        try:
            event, end = decoder.raw_decode(text, at)
        except ValueError as error:
            chunk = stream.read(CHUNK)
            text, at = text[at:] + chunk, 0
            if not chunk:
                if held is not None:
                    yield *held, ""
                raise OutputError(
                    f"the trace ends in the middle or is not JSON ({str(error).split(':')[0]})"
                ) from error
            continue
        if held is not None:
            yield *held, ""
        held = (event, text[at:end]) if isinstance(event, dict) else None
        at = end


def _bucket(event: dict[str, Any]) -> int | None:
    """Return the bucket of an event; None if it is never cut."""
    phase = event.get("ph")
    if phase == "M" or event.get("cat") in KEPT:
        return None
    if phase != "X":
        return 0
    return min(max(round(1000 * float(event.get("dur") or 0)), 1).bit_length(), BUCKETS)
