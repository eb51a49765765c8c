"""The configuration: YAML text → ``Config``. See ``docs/configuration.md``."""

from .load import load_config, parse_config
from .publish import json_schema, reference_markdown
from .schema import (
    Config,
    Deep,
    DeepPattern,
    FunctionRule,
    Sample,
    Sinks,
    TargetRule,
)
from .source import Source

__all__ = [
    "Config",
    "Deep",
    "DeepPattern",
    "FunctionRule",
    "Sample",
    "Sinks",
    "Source",
    "TargetRule",
    "json_schema",
    "load_config",
    "parse_config",
    "reference_markdown",
]
