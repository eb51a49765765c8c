"""The report of an examination: one ``Result`` a check, the exit status, and the text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from ...reports.text import safe, wrap


class CheckVerdict(str, Enum):
    """The result level of a check."""

    OK = "ok"
    WARNING = "warning"
    """Safe, at the cost of completeness."""
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
        checks = [asdict(result) for result in self.results]
        return {"subject": self.subject, "exit_status": self.exit_status, "checks": checks}


def render_report(report: Report, *, width: int) -> list[str]:
    """Return the lines of the report, ``width`` columns wide."""
    label_width = 29
    lines = [safe(f"autoprof doctor: {report.subject}"), ""]
    for result in report.results:
        lines += wrap(f"{result.verdict!s:13}{result.check}", result.message, width, label_width)
        if result.next:
            lines += wrap("", f"→ {result.next}", width, label_width)
    conclusion = {0: "safe: autoprof changes nothing here", 1: "not safe", 2: "not known to be safe"}
    counts = Counter(str(result.verdict) for result in report.results if result.verdict is not OK)
    shown = ", ".join(f"{verdict}: {count}" for verdict, count in counts.items())
    return [*lines, "", f"{conclusion[report.exit_status]}{f' ({shown})' if shown else ''}"]
