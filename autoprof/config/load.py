"""``load_config`` and ``parse_config``: only a configuration that is written loads the parsers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .schema import Config
from .source import IN_PYTHON


def load_config(source: str | os.PathLike[str] | Mapping[str, Any] | Config | None) -> Config:
    """Return the configuration of a YAML file, of a mapping with the same keys, or the defaults for None.

    Raises ``ConfigError`` with all problems: ``file:line: dotted.key: the problem; the allowed values``.
    """
    if isinstance(source, Config):
        return source
    if source is None:
        return Config()
    from .read import read_config

    return read_config(source)


def parse_config(text: str, where: str = IN_PYTHON) -> Config:
    """Return the configuration that the YAML text describes; ``where`` names the file in messages."""
    from .read import read_text

    return read_text(text, where)
