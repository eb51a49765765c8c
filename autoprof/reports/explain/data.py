"""The explanation of a run as frozen data, its JSON of at most 4 kB, and the JSON Schema made of these types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter

from ...base.names import shorten, visible
from ...base.summary import ClockName, Severity
from ...base.summary import State as LedgerState
from ...diagnose import Change, Operation, Quantity

MAX_BYTES: Final = 4_000
"""The most bytes of the JSON in UTF-8, with the newline at its end."""

State = Literal["found", "healthy", "unclear", "too few steps"]
Level = Literal["high", "medium", "low"]


@dataclass(frozen=True)
class CodePlace:
    """Where a cause is: a module's path and its name in the reports, the line of its ``forward`` or of a ``call``."""

    phase: str | None = None
    name: str | None = None
    module: str | None = None
    class_name: Annotated[str | None, Field(serialization_alias="class")] = None
    file: str | None = None
    line: int | None = None
    function: str | None = None
    call: str | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Confidence:
    """How certain a cause is: ``share`` is its part of the step with a 95 % interval, compared with ``bound``."""

    level: Level
    share: float | None = None
    low: float | None = None
    high: float | None = None
    bound: float | None = None


@dataclass(frozen=True)
class Expectation:
    """The result if the cause is right: ``quantity`` falls from ``now`` to ``at_best``; null is unknown."""

    quantity: Quantity
    now: float | None
    at_best: float | None


@dataclass(frozen=True)
class Trial:
    """One change of the program that would confirm the cause; ``advice`` says the same for people.

    ``target`` is the module, call or switch to change, null where there is only one.
    """

    change: Change
    operation: Operation
    value: bool | int | str | None
    target: str | None
    advice: str
    expect: Expectation


@dataclass(frozen=True)
class ExplainedCause:
    """One finding of a rule: a sentence, its place, and the experiment that would confirm it; null is unknown."""

    rule: str
    severity: Severity
    cause: str
    place: CodePlace
    gain_ns: int | None
    confidence: Confidence
    experiment: Trial


@dataclass(frozen=True)
class Unmeasured:
    """A signal that the run did not have, the rules that need it, and how to get it. Absent is never zero."""

    missing: str
    rules: tuple[str, ...]
    remedy: str


@dataclass(frozen=True)
class Explanation:
    """A training run explained to a program: its causes, the largest gain first, and the signals that it lacks.

    ``ledger`` has the nanoseconds of a mean step, and of excluded time, by state. ``more_causes`` and
    ``more_unmeasured`` count entries left out for length. docs/explain.md has each key.
    """

    run: str
    state: State
    steps: int
    step_ns: int
    clock: ClockName
    causes: tuple[ExplainedCause, ...] = ()
    unmeasured: tuple[Unmeasured, ...] = ()
    doubts: tuple[str, ...] = ()
    ledger: Mapping[LedgerState, int] = field(default_factory=dict)
    more_causes: int = 0
    more_unmeasured: int = 0
    schema: Literal["autoprof.explain/1"] = "autoprof.explain/1"


_TYPE: Final = TypeAdapter(Explanation)


def encode(found: Explanation) -> str:
    """Return the JSON on one line, at most ``MAX_BYTES`` with a newline; cut texts end in an ellipsis."""
    full, text = _TYPE.dump_python(found, by_alias=True), ""
    # The most entries of a list and characters of a text, from generous to tight; the first pair that fits is used.
    for entries, characters in ((12, 400), (9, 300), (7, 240), (5, 240), (4, 160), (3, 120), (2, 80), (1, 60), (1, 40)):
        cut = _cut(full, entries, characters)
        for key in ("causes", "unmeasured"):
            cut[f"more_{key}"] += len(full[key]) - len(cut[key])
        text = json.dumps(cut, ensure_ascii=False, separators=(",", ":"))
        if len(text.encode()) < MAX_BYTES:
            break
    return text


def _cut(value: Any, entries: int, characters: int) -> Any:
    """Return a JSON value with at most so many entries in each list and characters in each text."""
    if isinstance(value, str):
        return shorten(visible(value), characters)
    if isinstance(value, dict):
        return {key: _cut(one, entries, characters) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cut(one, entries, characters) for one in value[:entries]]
    return value


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the explanation."""
    schema = _TYPE.json_schema(mode="serialization", by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "autoprof.explain/1", **schema}
