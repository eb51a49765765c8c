"""The explanation of a run, as frozen data. ``explain-1.schema.json`` is the published form of its JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from .._ranks import SlowRank
from ..diagnose import Experiment
from ..summary import ClockName, Severity

SCHEMA_ID: Final = "autoprof.explain/1"
"""The first key of the JSON. Within a version keys are added, never removed or changed in meaning."""

State = Literal["found", "healthy", "unclear", "too few steps"]
Level = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True)
class CodePlace:
    """Where a cause is; None is unknown, or does not apply.

    ``module`` is the module's fqn, ``name`` its name in the reports. ``file`` is the full path; ``line`` is the line of
    the call, or of the module's ``forward``. ``call`` is the function called there.
    """

    phase: str | None = None
    name: str | None = None
    module: str | None = None
    class_name: str | None = None
    file: str | None = None
    line: int | None = None
    function: str | None = None
    call: str | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Confidence:
    """How certain a cause is. ``share`` is its part of the step with a 95 % interval, compared with ``bound``.

    ``high``: the low end is at least ``FIRM`` times the bound, or the cause is a fact. ``low``: something in ``doubts``
    may be the reason. ``medium``: anything else.
    """

    level: Level
    share: float | None = None
    low: float | None = None
    high: float | None = None
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class Expectation:
    """The result if the cause is right: ``quantity`` falls from ``now`` to ``at_best``, or towards it.

    None is unknown.
    """

    quantity: str
    now: float | None
    at_best: float | None


@dataclass(frozen=True, slots=True)
class Trial:
    """One change of the program that would confirm the cause, and the expected result."""

    change: Experiment
    advice: str
    expect: Expectation


@dataclass(frozen=True, slots=True)
class ExplainedCause:
    """One finding of a rule: a sentence, its place, its confidence, and the experiment that would confirm it."""

    rule: str
    severity: Severity
    cause: str
    place: CodePlace
    gain_ns: int | None
    confidence: Confidence
    experiment: Trial


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A signal that the run did not have, the rules that need it, and how to get it."""

    missing: str
    rules: tuple[str, ...]
    remedy: str


@dataclass(frozen=True, slots=True)
class ComparedRanks:
    """The ranks of a run: how many were compared in how many steps, which could not be, and which are slow."""

    compared: int
    steps: int
    absent: tuple[int, ...]
    slow: tuple[SlowRank, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the ranks as plain JSON types, by the schema."""
        return {
            "compared": self.compared,
            "steps": self.steps,
            "absent": list(self.absent),
            "slow": [
                {
                    "rank": one.rank,
                    "kind": one.kind,
                    "cause": one.cause,
                    "phase": str(one.phase),
                    "name": one.name,
                    "excess_ns": round(one.excess.middle),
                    "gain_ns": one.gain_ns,
                    "late": one.late,
                    "steps": list(one.steps),
                    "period": one.period,
                }
                for one in self.slow
            ],
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """A run explained: its causes in descending order of their gain, and the signals that it lacks."""

    run: str
    state: State
    steps: int
    step_ns: int
    clock: ClockName
    causes: tuple[ExplainedCause, ...] = ()
    unmeasured: tuple[Unmeasured, ...] = ()
    doubts: tuple[str, ...] = ()
    more_causes: int = 0
    more_unmeasured: int = 0
    ranks: ComparedRanks | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain JSON types, by the schema."""
        return {
            "schema": SCHEMA_ID,
            "run": self.run,
            "state": self.state,
            "steps": self.steps,
            "step_ns": self.step_ns,
            "clock": self.clock,
            "causes": [_cause(one) for one in self.causes],
            "more_causes": self.more_causes,
            "unmeasured": [asdict(one) | {"rules": list(one.rules)} for one in self.unmeasured],
            "more_unmeasured": self.more_unmeasured,
            "doubts": list(self.doubts),
            "ranks": None if self.ranks is None else self.ranks.to_dict(),
        }


def _cause(one: ExplainedCause) -> dict[str, Any]:
    place = asdict(one.place)
    place["class"] = place.pop("class_name")
    change, trial = one.experiment.change, one.experiment
    return {
        "rule": one.rule,
        "severity": one.severity,
        "cause": one.cause,
        "place": place,
        "gain_ns": one.gain_ns,
        "confidence": asdict(one.confidence),
        "experiment": {
            "change": change.change,
            "operation": change.operation,
            "value": change.value,
            "target": change.target,
            "advice": trial.advice,
            "expect": asdict(trial.expect),
        },
    }


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the explanation."""
    file = Path(__file__).with_name("explain-1.schema.json")
    return dict(json.loads(file.read_text(encoding="utf-8")))
