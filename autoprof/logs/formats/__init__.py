"""The log formats. A file's format is detected from its content, never from its name.

A module of this package without a leading underscore is a format; it holds a ``LogFormat`` under ``FORMAT``. The text
logs of other tools are entries of ``tools.yaml``. Another package adds a format through an entry point of the group
``autoprof.logs.formats``.
"""

from __future__ import annotations

from typing import Final

from ..._core.plugins import PartKind
from ..log_file import LogFile
from ._base import FormatHints, LogFormat, RawRecords
from ._json import JsonFormat
from ._text import TOOL_FORMATS, TextFormat, make_pattern_format

__all__ = [
    "FormatHints", "JsonFormat", "LogFormat", "RawRecords", "TextFormat",
    "detect_format", "formats_by_name", "make_pattern_format",
]  # fmt: skip

LOG_FORMATS: Final = PartKind("log format", "autoprof.logs.formats", "FORMAT", LogFormat)


def formats_by_name() -> dict[str, LogFormat]:
    """Return all formats by the name that ``load_logs(reader=)`` accepts; a built-in format keeps its name."""
    found = {log_format.name: log_format for log_format in reversed(LOG_FORMATS.parts.values())}
    return found | {log_format.name: log_format for log_format in TOOL_FORMATS}


def detect_format(log_file: LogFile) -> LogFormat | None:
    """Return the format with the highest score on a sample of the file; None if no format finds a record.

    Of equal scores the higher ``priority`` wins, then the name that comes first in the alphabet.
    """
    # Lines of the sample that are scored, from its beginning, its middle and its end.
    lines_per_place = 800
    sample = log_file.sample()
    if len(sample) > 3 * lines_per_place:
        middle = len(sample) // 2
        sample = [
            *sample[:lines_per_place],
            *sample[middle : middle + lines_per_place],
            *sample[-lines_per_place:],
        ]
    scored = []
    for _, log_format in sorted(formats_by_name().items()):
        try:
            scored.append((log_format.score(sample), log_format))
        except Exception as error:  # the other package's code may raise anything
            LOG_FORMATS.exclude_failed(log_format, error)
    score, best = max(scored, key=lambda entry: (entry[0], entry[1].priority))
    return best if score > 0 else None
