"""What an examination comes to: one ``Result`` a check, and the exit status that they add up to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Final

from .._targets import Coverage

SAFE: Final = 0
UNSAFE: Final = 1
UNCHECKED: Final = 2


class Verdict(str, Enum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    """Safe, but it costs accuracy, time or a part of the picture."""
    PROBLEM = "problem"
    """Not safe, or not usable."""
    UNKNOWN = "not checked"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Result:
    """One check: what was found, what to do about it (empty where nothing is), and the figures behind it."""

    check: str
    verdict: Verdict
    what: str
    next: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """All results, and what can be seen of each module."""

    subject: str
    results: tuple[Result, ...]
    modules: tuple[Coverage, ...] = ()

    @property
    def exit_status(self) -> int:
        """Return 0 when it is safe, 1 when a check found a problem, 2 when one could not be made; warnings are safe."""
        verdicts = {result.verdict for result in self.results}
        if Verdict.PROBLEM in verdicts:
            return UNSAFE
        return UNCHECKED if Verdict.UNKNOWN in verdicts else SAFE

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON types."""
        return {
            "subject": self.subject,
            "exit_status": self.exit_status,
            "checks": [{**asdict(result), "verdict": str(result.verdict)} for result in self.results],
            "modules": [
                {**asdict(one), "reason": None if one.reason is None else str(one.reason), "why": one.why}
                for one in self.modules
            ],
        }


def ok(check: str, what: str, **data: Any) -> Result:
    """Return the result of a check that found nothing wrong."""
    return Result(check, Verdict.OK, what, "", data)


def warning(check: str, what: str, then: str = "", **data: Any) -> Result:
    """Return the result of a check that found something to know."""
    return Result(check, Verdict.WARNING, what, then, data)


def problem(check: str, what: str, then: str = "", **data: Any) -> Result:
    """Return the result of a check that found that it is not safe."""
    return Result(check, Verdict.PROBLEM, what, then, data)


def unknown(check: str, what: str, then: str = "", **data: Any) -> Result:
    """Return the result of a check that could not be made."""
    return Result(check, Verdict.UNKNOWN, what, then, data)
