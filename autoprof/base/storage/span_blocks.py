"""The codec of ``spans.bin``: the columns of the spans of some steps that share a layout, as one compressed block.

A start is stored as the difference to the start of the span before. The bytes of the integers are stored by place (all
lowest bytes, then the next ones), each span's steps side by side, and compressed by zlib. Every integer is read back
exactly. A block has a checksum and needs no other block, so that a file is readable up to the last whole block.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from ..frame import Layout, Nanoseconds

COLUMNS: Final = (
    "start_ns", "host_ns", "device_start_ns", "device_ns", "host_bound_ns", "memory_start_bytes", "memory_end_bytes",
    "memory_peak_bytes",
)  # fmt: skip
HEADER: Final = struct.Struct("<4sIHHIBI")
"""Magic, bytes of the stream, columns (a bit each), steps, spans, bytes of an integer, checksum."""
MAGIC: Final = b"aps2"

Matrix = npt.NDArray[np.int64]


def encode_block(columns: Mapping[str, Matrix]) -> bytes:
    """Return the block of some columns, each with a row a step."""
    values = np.stack([_differences(name, column) for name, column in columns.items()])
    _, steps, spans = values.shape
    data, width = _to_bytes(values.transpose(0, 2, 1))
    stream = zlib.compress(data)
    bits = sum(1 << COLUMNS.index(name) for name in columns)
    return HEADER.pack(MAGIC, len(stream), bits, steps, spans, width, zlib.crc32(stream)) + stream


def decode_block(layout: Layout, head: bytes, stream: bytes) -> Mapping[str, Matrix]:
    """Return the columns of a block, each with a row a step. Raises ``ValueError`` for bytes that are none."""
    _, length, bits, steps, spans, width, checksum = HEADER.unpack(head)
    if len(stream) != length or zlib.crc32(stream) != checksum:
        raise ValueError("a block that is not whole")
    names = [name for at, name in enumerate(COLUMNS) if bits >> at & 1]
    size = len(names) * steps * spans * width
    # The most bytes of a block that are read: a damaged header asks for no gigabytes of memory.
    if spans != len(layout) or size > 2**28 or not 1 <= width <= 8:
        raise ValueError(f"a block of {spans} spans and {size} bytes for {len(layout)} spans")
    try:
        data = zlib.decompressobj().decompress(stream, size + 1)
    except zlib.error as error:
        raise ValueError(f"a damaged block ({error})") from None
    if len(data) != size:
        raise ValueError(f"a block of {len(data)} bytes instead of {size}")
    values = _from_bytes(data, width).reshape(len(names), spans, steps).transpose(0, 2, 1)
    return {
        name: column.cumsum(axis=1) if name.endswith("start_ns") else column
        for name, column in zip(names, values, strict=True)
    }


class BlockReader:
    """Read the blocks of one ``spans.bin`` by their offsets; the last ones are kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
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
            if len(head) < HEADER.size or head[:4] != MAGIC:
                raise ValueError("no block begins here")
            return head, self._file.read(min(HEADER.unpack(head)[1], 2**28))
        except OSError as error:
            raise ValueError(f"{self._path}: cannot be read ({error.strerror})") from error

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _differences(name: str, column: Matrix) -> Matrix:
    return np.diff(column, axis=1, prepend=0) if name.endswith("start_ns") else column


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
