"""The records of one rank: ``steps.jsonl`` with a line a step, ``spans.bin`` with the times of its spans.

Records without end are limited in size: they are written in parts (``steps.jsonl``, ``steps.1.jsonl``, …, each with its
own ``spans.bin``), and above the limit the oldest part but the first is removed.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...errors import OutputError
from ..frame import Phase, StepFrame, phases_of_steps
from .line_file import AppendFile
from .span_blocks import BlockReader, encode_block
from .steps_jsonl import BAD_LINE, FrameDecoder, FrameEncoder, columns_of

RECORDS: Final = "steps.jsonl"
PARTS: Final = 16
"""Parts of records that have reached their limit."""
REMOVED_STEPS: Final = (
    "the records have reached their part of output_max_mb: they keep their first steps and the last ones; the figures "
    "of the summary are of all recorded steps"
)


def part_names(number: int) -> tuple[str, str]:
    """Return the names of the files of one part: lines, spans."""
    return (RECORDS, "spans.bin") if number == 0 else (f"steps.{number}.jsonl", f"spans.{number}.bin")


def parts_of(path: Path) -> list[int]:
    """Return the numbers of the parts of records, of which ``path`` is the first."""
    if path.name != RECORDS:
        return [0]
    found = (re.fullmatch(r"steps\.([1-9][0-9]{0,8})\.jsonl", one.name) for one in path.parent.glob("steps.*.jsonl"))
    return [0, *sorted(int(match[1]) for match in found if match)]


def record_files(path: Path) -> list[Path]:
    """Return the files of lines, in order; ``path`` is the first of them."""
    return [path, *(path.with_name(part_names(number)[0]) for number in parts_of(path)[1:])]


class RecordWriter:
    """Write frames as lines and blocks, at the latest after ``flush_s`` seconds.

    If the process is killed, the steps since the last write are lost: those of ``flush_s`` seconds or of one block,
    whichever is less. With ``max_bytes`` the records stay below it.
    """

    def __init__(
        self, folder: Path, flush_s: float, clock: Callable[[], float], *, max_bytes: int | None = None
    ) -> None:
        self._folder = folder
        self._flush_s = flush_s
        self._clock = clock
        self._max_bytes = max_bytes
        self._encoder = FrameEncoder()
        self._number = 0
        self._lines, self._spans = self._open_part()
        self._whole: list[tuple[int, int]] = []
        """The number and the size of each part that is whole."""
        self._frames: list[StepFrame] = []
        self._alike: dict[Any, list[StepFrame]] = {}
        """These frames by layout, columns and phases of the model's own time."""
        self._numbers = 0
        """Integers of the frames that wait."""
        self._due = clock() + flush_s
        self.has_removed_steps = False
        """Whether parts were removed to stay below the limit."""

    def write(self, frame: StepFrame) -> None:
        """Add a frame; write all pending ones when they are due."""
        columns = columns_of(frame)
        self._frames.append(frame)
        self._alike.setdefault((frame.layout, columns, *frame.model_ns), []).append(frame)
        self._numbers += len(frame.layout) * len(columns)
        # Integers of a block: it takes about 0.7 ms to compress them.
        full = len(self._frames) >= 256 or self._numbers >= 2**15
        if full or self._clock() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Write the pending steps: first their times, then their lines, which refer to them."""
        self._due = self._clock() + self._flush_s
        frames, alike, self._frames, self._alike, self._numbers = self._frames, self._alike, [], {}, 0
        if not frames:
            return
        places: dict[int, tuple[Mapping[Phase, int], tuple[int, int]]] = {}
        blocks, offset = [], self._spans.size
        for (_, columns, *_), group in alike.items():
            times = {name: np.array([getattr(one, name) for one in group], dtype=np.int64) for name in columns}
            blocks.append(encode_block(times))
            for row, (frame, phases) in enumerate(zip(group, phases_of_steps(group), strict=True)):
                places[id(frame)] = phases, (offset, row)
            offset += len(blocks[-1])
        lines = [self._encoder.encode(frame, *places[id(frame)]) for frame in frames]
        self._spans.append(b"".join(blocks))
        self._lines.append("".join(lines).encode("utf-8", "replace"))
        if self._max_bytes is not None and self._size >= self._max_bytes // PARTS:
            self._begin_part()
            self._remove_parts(self._max_bytes)

    @property
    def _size(self) -> int:
        return self._lines.size + self._spans.size

    def _open_part(self) -> tuple[AppendFile, AppendFile]:
        lines_name, spans_name = part_names(self._number)
        return AppendFile(self._folder / lines_name), AppendFile(self._folder / spans_name)

    def _begin_part(self) -> None:
        self._whole.append((self._number, self._size))
        self._close_files()
        self._number += 1
        self._encoder.begin_anew()
        self._lines, self._spans = self._open_part()

    def _remove_parts(self, max_bytes: int) -> None:
        """Remove the oldest parts but the first until there is space for another one."""
        limit = max_bytes - max_bytes // PARTS
        while sum(size for _, size in self._whole) > limit and len(self._whole) > 2:
            number, _ = self._whole.pop(1)
            for name in part_names(number):
                os.unlink(self._folder / name)
            self.has_removed_steps = True

    def _close_files(self) -> None:
        try:
            self._lines.close()
        finally:
            self._spans.close()

    def close(self) -> None:
        """Write the pending steps and close the files, also when the write fails. A second call does nothing."""
        if not self._lines.is_open:
            return
        try:
            self.flush()
        finally:
            self._close_files()


class Frames:
    """The frames of the records of one rank, read anew at each iteration, one at a time.

    A line that is not a whole frame (the last one after a ``kill -9``) is skipped and counted in ``bad_lines``; the
    count is complete after the iteration.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bad_lines = 0

    @property
    def has_removed_steps(self) -> bool:
        """Whether parts were removed to limit the size."""
        numbers = parts_of(self.path)
        return len(numbers) <= numbers[-1]

    def __iter__(self) -> Iterator[StepFrame]:
        self.bad_lines = 0
        for number in parts_of(self.path):
            with self._open_part(number) as (lines, decoder):
                yield from filter(None, (self._decode(decoder, line) for line in lines))

    def last(self, count: int) -> list[StepFrame]:
        """Return the last ``count`` frames. The times of those before them are not read."""
        frames: list[StepFrame] = []
        for number in reversed(parts_of(self.path)):
            with self._open_part(number) as (lines, decoder):
                kept: deque[bytes] = deque()
                for line in lines:
                    kept.append(line)
                    # A later line may refer to the names that this one has.
                    if len(kept) > count - len(frames) and b'"layout":' in (passed := kept.popleft()):
                        self._decode(decoder, passed)
                frames[:0] = filter(None, [self._decode(decoder, line) for line in kept])
            if len(frames) >= count:
                break
        return frames

    @contextmanager
    def _open_part(self, number: int) -> Iterator[tuple[Iterator[bytes], FrameDecoder]]:
        """Open a part for its lines, and a decoder of them. Raises ``OutputError`` where it cannot be read."""
        lines_name, spans_name = part_names(number)
        path = self.path if number == 0 else self.path.with_name(lines_name)
        try:
            lines = path.open("rb")
        except OSError as error:
            allowed = "it must be a file that this user may read"
            raise OutputError(f"{path}: cannot be read ({error.strerror}); {allowed}") from error
        with lines, closing(BlockReader(path.with_name(spans_name))) as blocks:
            yield filter(bytes.strip, lines), FrameDecoder(blocks)

    def _decode(self, decoder: FrameDecoder, line: bytes) -> StepFrame | None:
        try:
            return decoder.decode(line)
        except BAD_LINE:
            self.bad_lines += 1
            return None
