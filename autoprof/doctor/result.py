"""The report of an examination: one ``Result`` a check, and the exit status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Final

from .._targets import Coverage

SAFE: Final = 0
UNSAFE: Final = 1
UNCHECKED: Final = 2


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
    """All results, and the coverage of each module."""

    subject: str
    results: tuple[Result, ...]
    modules: tuple[Coverage, ...] = ()

    @property
    def exit_status(self) -> int:
        """0: safe, warnings included; 1: a check found a problem; 2: a check could not run."""
        verdicts = {result.verdict for result in self.results}
        if CheckVerdict.PROBLEM in verdicts:
            return UNSAFE
        return UNCHECKED if CheckVerdict.UNKNOWN in verdicts else SAFE

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


def ok(check: str, message: str, **data: Any) -> Result:
    """Make the result of a check without a problem."""
    return Result(check, CheckVerdict.OK, message, "", data)


def warning(check: str, message: str, advice: str = "", **data: Any) -> Result:
    """Make the result of a check whose observation costs accuracy or time."""
    return Result(check, CheckVerdict.WARNING, message, advice, data)


def problem(check: str, message: str, advice: str = "", **data: Any) -> Result:
    """Make the result of a check that found profiling unsafe."""
    return Result(check, CheckVerdict.PROBLEM, message, advice, data)


def unknown(check: str, message: str, advice: str = "", **data: Any) -> Result:
    """Make the result of a check that could not run."""
    return Result(check, CheckVerdict.UNKNOWN, message, advice, data)
