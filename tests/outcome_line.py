"""One line at the end of a run of the tests: how many passed, how many were skipped, and which parts those need."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NEEDS = "needs "
"""The beginning of each reason to skip a test; the missing part follows, up to a colon."""
UNKNOWN = "another reason"
"""The part of a reason that does not name one."""


def describe_outcome(stats: Mapping[str, Sequence[Any]]) -> str:
    """Return the line for pytest's reports by outcome; empty where no test has ended.

    Failures and errors come first.
    """
    counts = {key: len(stats.get(key, ())) for key in ("failed", "error", "passed", "xfailed", "skipped")}
    if not any(counts.values()):
        return ""
    verbs = {"failed": "failed", "error": "had an error"}
    parts = [f"{counts[key]:,} {verb}" for key, verb in verbs.items() if counts[key]]
    parts.append(f"{counts['passed'] + counts['xfailed']:,} passed")
    if counts["skipped"]:
        parts.append(f"{counts['skipped']:,} skipped: {_describe_parts(map(reason_of, stats['skipped']))}")
    return "; ".join(parts)


def reason_of(report: Any) -> str:
    """Return the reason of a report of a skipped test or file."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return str(reason).removeprefix("Skipped: ")


def _describe_parts(reasons: Iterable[str]) -> str:
    """Return the number of tests for each missing part, the most frequent one first."""
    counts = Counter(
        re.split(r"[:\n]", reason, maxsplit=1)[0].removeprefix(NEEDS) if reason.startswith(NEEDS) else UNKNOWN
        for reason in reasons
    )
    return ", ".join(
        f"{count:,} for {part}" if part == UNKNOWN else f"{count:,} need{'s' if count == 1 else ''} {part}"
        for part, count in sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    )
