"""Rules that select the timed modules, and functions by their path."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final, Literal, get_args

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from ..base.frame import Phase
from ..base.names import clean_name, quoted
from ..base.options import Options

ModulePhase = Literal[Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD]
"""``MODULE_PHASES`` as a type, which has to be written out."""

ANY_FQN: Final = "(?s:.*)"
"""The pattern of a rule without ``match``, so that ``\\g<0>`` is the fqn there too."""


class TargetRule(Options):
    """A rule that selects modules and their timed phases. It needs `match` or `type`; with both, both must match."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [{"required": ["match"]}, {"required": ["type"]}]})

    match: str | None = None
    """A regular expression that must match the whole fqn of the module."""
    type: str | None = None
    """A regular expression that must match the whole class name of the module."""
    name: str | None = Field(default=None, min_length=1)
    """The name to show; `\\1`, `\\g<word>` are groups of `match`, `\\g<0>` is the fqn. Several modules
    under one name add up. Default: the fqn with `/` for `.` (for the model itself: its class name)."""
    phases: tuple[ModulePhase, ...] = Field(
        default=get_args(ModulePhase), min_length=1, json_schema_extra={"uniqueItems": True}
    )
    """The timed phases."""
    memory: bool = Field(default=False, strict=True)
    """Record the memory before and after each call as well."""
    detail: Literal["shapes"] | None = None
    """`shapes`: note the shapes that each module takes and returns at its first call."""

    @cached_property
    def match_pattern(self) -> re.Pattern[str]:
        """`match`, compiled; without `match` a pattern that matches every fqn."""
        return _compile(ANY_FQN if self.match is None else self.match)

    @cached_property
    def type_pattern(self) -> re.Pattern[str] | None:
        """`type`, compiled."""
        return None if self.type is None else _compile(self.type)

    @field_validator("match", "type")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        if value is not None:
            _compile(value)
        return value

    @field_validator("name")
    @classmethod
    def _expands(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and "match" in info.data:
            _check_template(value, _compile(ANY_FQN if info.data["match"] is None else info.data["match"]))
        return value

    @model_validator(mode="after")
    def _selects(self) -> TargetRule:
        if self.match is None and self.type is None:
            raise ValueError("the rule selects nothing; add 'match' or 'type', or both")
        return self


class FunctionRule(Options):
    """A function that is timed without a change of its source."""

    path: str
    """The path of the function: `package.module:function` or `package.module:Class.method`."""
    name: str | None = Field(default=None, min_length=1)
    """The name to show. Default: the path with `/` for `.` and `:`."""

    @field_validator("path")
    @classmethod
    def _is_path(cls, value: str) -> str:
        if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*", value):
            raise ValueError(f"{quoted(value)} is not the path of a function; allowed: 'package.module:qualified.name'")
        return value

    @property
    def label(self) -> str:
        """The name to show, clean."""
        return clean_name(self.name or self.path.replace(".", "/").replace(":", "/"))


def _compile(pattern: str) -> re.Pattern[str]:
    """Compile a pattern; raise a ``ValueError`` with the position of its error."""
    try:
        return re.compile(pattern)
    except re.error as error:
        at = "" if error.pos is None else f" at character {error.pos + 1}"
        problem = f"{quoted(pattern)} is not a regular expression: {error.msg}{at}; allowed: the syntax of Python's re"
        raise ValueError(problem) from None


def _check_template(template: str, pattern: re.Pattern[str]) -> None:
    """Raise a ``ValueError`` when the template refers to a group that the pattern does not have."""
    try:
        pattern.sub(template, "")  # parses the template whether or not anything matches
    except (re.error, IndexError) as error:
        groups = ["\\g<0>", *(f"\\{index}" for index in range(1, pattern.groups + 1))]
        groups += [f"\\g<{word}>" for word in pattern.groupindex]
        problem = f"{quoted(template)} does not fit 'match': {error}; allowed: text with {', '.join(groups)}"
        raise ValueError(problem) from None
