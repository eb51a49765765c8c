"""The configuration: YAML text → ``Config``. See ``docs/configuration.md``."""

from typing import TYPE_CHECKING, Any

from .load import load_config, parse_config
from .schema import (
    Config,
    Deep,
    FunctionRule,
    Sample,
    Sinks,
    TargetRule,
)

if TYPE_CHECKING:
    from .publish import json_schema, reference_markdown

__all__ = [
    "Config",
    "Deep",
    "FunctionRule",
    "Sample",
    "Sinks",
    "TargetRule",
    "json_schema",
    "load_config",
    "parse_config",
    "reference_markdown",
]


def __getattr__(name: str) -> Any:
    """Load the schema for others only where it is published: no session needs it."""
    if name in ("json_schema", "reference_markdown"):
        from . import publish

        return getattr(publish, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
