"""The log formats. A file's format is detected from its content, never from its name.

The text logs of other tools are entries of ``tools.yaml``.
"""

from __future__ import annotations

from typing import Final

from ..log_file import LogFile
from ._base import LogFormat, RawRecords
from ._text import TOOL_FORMATS, make_pattern_format
from .csv import CsvFormat
from .global_timer import GlobalTimerLog
from .json_document import JsonDocument
from .jsonl import JSONL
from .text import PlainText
from .timing_log import TimingLog

__all__ = ["LogFormat", "RawRecords", "detect_format", "make_pattern_format"]

FORMATS: Final[tuple[LogFormat, ...]] = (
    CsvFormat(name="csv", priority=15),
    GlobalTimerLog(name="global timer", priority=12),
    JsonDocument(name="json document", priority=25),
    JSONL,
    PlainText(name="text", priority=-10),
    TimingLog(name="timing.log", priority=12),
    *TOOL_FORMATS,
)


def detect_format(log_file: LogFile) -> LogFormat | None:
    """Return the format with the highest score on a sample of the file; None if no format finds a record.

    Of equal scores the higher ``priority`` wins.
    """
    # Lines that are scored at the beginning and at the end of the sample.
    most = 1200
    sample = log_file.sample()
    sample = sample[:most] + sample[most:][-most:]
    scored = [(log_format.score(sample), log_format) for log_format in sorted(FORMATS, key=lambda one: one.name)]
    score, best = max(scored, key=lambda entry: (entry[0], entry[1].priority))
    return best if score > 0 else None
