"""The report of an examination: one ``Result`` a check, the exit status, and the text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from .._reports.text import UNICODE, glyphs_for, safe, wrap


class CheckVerdict(str, Enum):
    """The result level of a check."""

    OK = "ok"
    WARNING = "warning"
    """Safe, at the cost of accuracy, time or completeness."""
    PROBLEM = "problem"
    """Not safe, or not usable."""
    UNKNOWN = "not checked"

    def __str__(self) -> str:
        return self.value


OK, WARNING, PROBLEM, UNKNOWN = CheckVerdict


@dataclass(frozen=True, slots=True)
class Result:
    """One check: the observation, the advice (empty if there is none), and the figures behind it."""

    check: str
    verdict: CheckVerdict
    message: str
    next: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """All results."""

    subject: str
    results: tuple[Result, ...]

    @property
    def exit_status(self) -> int:
        """0: safe, warnings included; 1: a check found a problem; 2: a check could not run."""
        verdicts = {result.verdict for result in self.results}
        return 1 if PROBLEM in verdicts else 2 if UNKNOWN in verdicts else 0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON types."""
        return {
            "subject": self.subject,
            "exit_status": self.exit_status,
            "checks": [{**asdict(result), "verdict": str(result.verdict)} for result in self.results],
        }


def render_report(report: Report, *, width: int, encoding: str = "utf-8") -> str:
    """Return the report as text, ``width`` columns wide."""
    label_width = 29
    arrow = "→" if glyphs_for(encoding) is UNICODE else "->"
    lines = [safe(f"autoprof doctor: {report.subject}", encoding), ""]
    for result in report.results:
        label = f"{result.verdict!s:13}{result.check}"
        lines += wrap(label, safe(result.message, encoding), width, label_width)
        if result.next:
            lines += wrap("", f"{arrow} {safe(result.next, encoding)}", width, label_width)
    return "\n".join([*lines, "", _conclude(report)]) + "\n"


def _conclude(report: Report) -> str:
    count = Counter(result.verdict for result in report.results)
    behind = f", warnings: {count[WARNING]}" if count[WARNING] else ""
    if count[PROBLEM]:
        return f"not safe: problems found: {count[PROBLEM]}{behind}"
    if count[UNKNOWN]:
        return f"not known to be safe: checks that could not run: {count[UNKNOWN]}{behind}"
    return f"safe: autoprof changes nothing here{behind}"
