"""The codec of ``spans.bin``: the columns of the spans of some steps that share a layout, as one compressed block.

The starts and ends of a step's spans are put in the order in which a stack of calls has them, and each is stored as the
difference to the one before: the length of a call, or the pause between two. From each difference the median over the
steps is subtracted. The rest is small; its bytes are stored by place (all lowest bytes, then the next ones), the spans
with small medians first, and compressed with zlib's run lengths and Huffman codes. Every integer is read back exactly.

A block is a header and a zlib stream with a checksum. It needs no other block, so that a file is readable up to the
last whole block.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from .._stats.layout_cache import cached_by_layout
from ..frame import Layout, Nanoseconds

COLUMNS: Final = (
    "start_ns", "host_ns", "device_start_ns", "device_ns", "host_bound_ns", "memory_start_bytes", "memory_end_bytes",
    "memory_peak_bytes", "memory_bound_bytes", "memory_reserved_bytes",
)  # fmt: skip
_INTERVALS: Final = {"start_ns": "host_ns", "device_start_ns": "device_ns"}
"""Columns of starts with their columns of lengths."""
HEADER: Final = struct.Struct("<4sIHHIBBI")
"""Magic, bytes of the stream, columns (a bit each), steps, spans, bytes of a median and of a rest, checksum."""
MAGIC: Final = b"aps1"
MAX_NS: Final = 2**55
"""The longest time that a record may have, a year; a sum over many spans stays below 64 bits."""

Matrix = npt.NDArray[np.int64]


def encode_block(layout: Layout, columns: Sequence[str], steps: Matrix) -> bytes:
    """Return the block of some steps, each a row: the concatenation of its columns."""
    count = len(layout)
    parts = {name: steps[:, at * count : (at + 1) * count] for at, name in enumerate(columns)}
    order = _stack_order(layout)
    for start, length in _INTERVALS.items():
        if start in parts:
            ends = parts[start] + parts[length]
            marks = np.concatenate([parts[start], ends], axis=1)[:, order]
            marks[:, 1:] -= marks[:, :-1].copy()
            parts[start], parts[length] = marks[:, :count], marks[:, count:]
    values = np.concatenate([parts[name] for name in columns], axis=1)
    # Steps of which the median is taken, evenly spaced: more are hardly better, and cost time.
    median = np.sort(values[:: -(-len(values) // 15)], axis=0)
    median = median[len(median) // 2]
    rest = (values - median)[:, np.argsort(median, kind="stable")].T
    (medians, median_bytes), (rests, rest_bytes) = _to_bytes(median), _to_bytes(rest)
    # zlib's `memLevel`: Huffman codes for each 4,096 bytes, which suits spans that are sorted by their medians.
    packer = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, 6, zlib.Z_RLE)
    stream = packer.compress(medians) + packer.compress(rests) + packer.flush()
    bits = sum(1 << COLUMNS.index(name) for name in columns)
    head = MAGIC, len(stream), bits, len(steps), count, median_bytes, rest_bytes, zlib.crc32(stream)
    return HEADER.pack(*head) + stream


def decode_block(layout: Layout, head: bytes, stream: bytes) -> Mapping[str, Matrix]:
    """Return the columns of a block, each with a row a step. Raises ``ValueError`` for bytes that are none."""
    names, steps, count, median_bytes, rest_bytes = _read_head(head, stream)
    if count != len(layout):
        raise ValueError(f"a block of {count} spans for {len(layout)} spans")
    numbers = count * len(names)
    size = numbers * (median_bytes + steps * rest_bytes)
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(stream, size + 1)
    except zlib.error as error:
        raise ValueError(f"a damaged block ({error})") from None
    if len(data) != size:
        raise ValueError(f"a block of {len(data)} bytes instead of {size}")
    median = _from_bytes(data[: numbers * median_bytes], median_bytes)
    rest = _from_bytes(data[numbers * median_bytes :], rest_bytes).reshape(numbers, steps)
    values = np.empty((steps, numbers), dtype=np.int64)
    values[:, np.argsort(median, kind="stable")] = rest.T
    values += median
    parts = {name: values[:, at * count : (at + 1) * count] for at, name in enumerate(names)}
    order = _stack_order(layout)
    for start, length in _INTERVALS.items():
        if start in parts:
            marks = np.empty((steps, 2 * count), dtype=np.int64)
            marks[:, order] = np.concatenate([parts[start], parts[length]], axis=1).cumsum(axis=1)
            parts[start], parts[length] = marks[:, :count], marks[:, count:] - marks[:, :count]
    return parts


class BlockReader:
    """Read the blocks of one ``spans.bin`` by their offsets, or of its ``content``; the last ones are kept."""

    def __init__(self, path: Path, content: bytes | None = None) -> None:
        self._path = path
        self._file: BinaryIO | None = None if content is None else BytesIO(content)
        self._blocks: dict[tuple[int, Layout], Mapping[str, Matrix]] = {}

    def row(self, offset: int, row: int, layout: Layout) -> dict[str, Nanoseconds]:
        """Return the columns of one step. Raises ``ValueError`` where the file has no whole block of this layout."""
        block = self.block(offset, layout)
        if any(row >= len(column) for column in block.values()):
            raise ValueError(f"a block has no row {row}")
        return {name: column[row] for name, column in block.items()}

    def block(self, offset: int, layout: Layout) -> Mapping[str, Matrix]:
        """Return the columns of a block (steps × spans). Raises ``ValueError`` for a block that is not whole."""
        block = self._blocks.get((offset, layout))
        if block is None:
            block = decode_block(layout, *self._read(offset))
            # Blocks kept by a reader: the steps of several layouts may alternate.
            if len(self._blocks) >= 8:
                del self._blocks[next(iter(self._blocks))]
            self._blocks[offset, layout] = block
        return block

    def _read(self, offset: int) -> tuple[bytes, bytes]:
        try:
            if self._file is None:
                self._file = self._path.open("rb")
            self._file.seek(offset)
            head = self._file.read(HEADER.size)
            return head, self._file.read(stream_length(head))
        except OSError as error:
            raise ValueError(f"{self._path}: cannot be read ({error.strerror})") from error

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def stream_length(head: bytes) -> int:
    """Return the number of bytes behind a header. Raises ``ValueError`` for bytes that are none."""
    if len(head) < HEADER.size or head[:4] != MAGIC:
        raise ValueError("no block begins here")
    length = int(HEADER.unpack(head)[1])
    if length > 2**28:
        raise ValueError(f"a block of {length} bytes")
    return length


def _read_head(head: bytes, stream: bytes) -> tuple[tuple[str, ...], int, int, int, int]:
    _, length, bits, steps, count, median_bytes, rest_bytes, checksum = HEADER.unpack(head)
    if len(stream) != length or zlib.crc32(stream) != checksum:
        raise ValueError("a block that is not whole")
    names = tuple(name for at, name in enumerate(COLUMNS) if bits >> at & 1)
    paired = all((start in names) == (length in names) for start, length in _INTERVALS.items())
    # The most integers of a block that are read: a damaged header asks for no gigabytes of memory.
    fits = bits < 1 << len(COLUMNS) and steps * count * len(names) <= 2**25
    if not (paired and fits and 1 <= median_bytes <= 8 and 1 <= rest_bytes <= 8):
        raise ValueError("a header of another version")
    return names, steps, count, median_bytes, rest_bytes


@cached_by_layout
def _stack_order(layout: Layout) -> npt.NDArray[np.intp]:
    """Return the starts (``span``) and ends (``spans + span``) in the order in which a stack of calls has them."""
    children: dict[int, list[int]] = {}
    for span, parent in enumerate(layout.parents):
        children.setdefault(parent, []).append(span)
    count, order = len(layout), []
    waiting = children.get(-1, [])[::-1]
    while waiting:
        mark = waiting.pop()
        order.append(mark)
        if mark < count:
            waiting.append(count + mark)
            waiting += children.get(mark, [])[::-1]
    return np.array(order, dtype=np.intp)


def _to_bytes(values: Matrix) -> tuple[bytes, int]:
    """Return integers as unsigned ones of as many bytes as the largest needs: 0, -1, 1, … become 0, 1, 2, …"""
    unsigned = ((values << 1) ^ (values >> 63)).astype(np.uint64).ravel()
    width = max((int(unsigned.max(initial=0)).bit_length() + 7) // 8, 1)
    return unsigned.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].T.tobytes(), width


def _from_bytes(data: bytes, width: int) -> Matrix:
    planes = np.frombuffer(data, dtype=np.uint8).reshape(width, -1)
    values = planes[0].astype(np.uint64)
    for place in range(1, width):
        if planes[place].any():
            values |= planes[place].astype(np.uint64) << np.uint64(8 * place)
    halves: Matrix = (values >> np.uint64(1)).astype(np.int64)
    halves ^= -(values & np.uint64(1)).astype(np.int64)
    return halves
