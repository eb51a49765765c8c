"""The log formats. A file's format is detected from its content, never from its name.

A format is a function from the lines of a file to its records. The text logs of other tools are entries of
``tools.yaml``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ..fields import TABLE
from ..records import Records
from .csv import read_table
from .global_timer import read_timer_log
from .objects import read_document, read_objects
from .text import read_text
from .timing_log import read_timing_log
from .tools import read_lines

Reader = Callable[[Sequence[str]], Records]

_READERS: Final[tuple[Reader, ...]] = (
    *(partial(read_objects if "keys" in tool else read_lines, name=name, tool=tool)
      for name, tool in TABLE["tools"].items()),
    read_objects, read_table, read_timer_log, read_timing_log, read_text,
)  # fmt: skip


def read_records(lines: Sequence[str]) -> Records:
    """Read a file in the format that finds most records in a sample of it; of equal formats the first."""
    # Lines at the beginning and at the end of the sample.
    most = 1200
    document = read_document(lines)
    if document is not None:
        return document
    sample = lines if len(lines) <= 2 * most else [*lines[:most], *lines[-most:]]
    tried = [(reader, reader(sample)) for reader in _READERS]
    reader, records = max(tried, key=lambda entry: len(entry[1].rows) * entry[1].weight)
    return records if sample is lines else reader(lines)
