"""Records of a run, written by hand as a session writes them."""

from collections.abc import Iterable
from math import inf
from pathlib import Path

from autoprof.base.frame import StepFrame
from autoprof.base.storage.records import RECORDS, RecordWriter


def write_records(folder: Path, frames: Iterable[StepFrame]) -> Path:
    """Write the steps of one rank to its folder; return the file of lines."""
    writer = RecordWriter(folder, inf, lambda: 0.0)
    for frame in frames:
        writer.write(frame)
    writer.close()
    return folder / RECORDS
