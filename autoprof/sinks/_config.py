"""``Config``: the settings of a run with a section for each sink that is found, built-in or of another package."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field, create_model, field_validator

from ..base.log import logger
from ..base.options import Options
from ..config import Settings
from ..config.source import IN_PYTHON
from ._kind import SINKS, SinkKind


def _kinds() -> dict[str, SinkKind]:
    """Return the kinds by key: those that are on by default first."""
    found: dict[str, SinkKind] = {}
    for name, kind in SINKS.parts.items():
        if name.isidentifier() and not name.startswith("_"):
            found[name] = kind
        else:
            logger.warning("sink %r of another package: the name cannot be a key; it must be an identifier", name)
    return dict(sorted(found.items(), key=lambda item: item[1].default is None))


class SinksBase(Options):
    """Outputs of the steps. A sink that is named is on, with its defaults where its value is empty."""

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_switch(cls, value: Any) -> Any:
        if isinstance(value, bool):
            word = str(value).lower()
            raise ValueError(f"{word} is a boolean; allowed: the sink's options, {{}} for its defaults, or no key")
        return value


if TYPE_CHECKING:

    class Sinks(SinksBase):
        """The fields are known only when the sinks are found."""

        def __init__(self, **sinks: Options | None) -> None: ...

        def __getattr__(self, name: str) -> Any: ...

else:

    def _description(kind: SinkKind) -> str:
        first = " ".join(kind.options.__doc__.split("\n\n")[0].split()) if kind.options.__doc__ else ""
        return f"{first.removesuffix('.')}; needs the extra `{kind.extra}`." if kind.extra else first

    Sinks = create_model(
        "Sinks",
        __base__=SinksBase,
        __module__=__name__,
        __doc__=SinksBase.__doc__,
        **{
            name: (kind.options | None, Field(default=None, description=_description(kind)))
            for name, kind in _kinds().items()
        },
    )


def default_sinks() -> Sinks:
    """Return the sinks of a configuration that has no key ``sinks``."""
    return Sinks(**{name: kind.default for name, kind in SINKS.parts.items() if kind.default is not None})


class Config(Settings):
    """The configuration of a run: recorded modules and steps, and the outputs."""

    sinks: Sinks = Field(default_factory=default_sinks)
    """The outputs. `{}`: none. Without this key: console, log, jsonl, memory_plot."""

    @field_validator("sinks", mode="before")
    @classmethod
    def _not_empty(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("the value is missing; write {} for no sinks, or remove the key for the default sinks")
        return value


def load_config(source: str | os.PathLike[str] | Mapping[str, Any] | Config | None) -> Config:
    """Return the configuration of a YAML file, of a mapping with the same keys, or the defaults for None.

    Raises ``ConfigError`` with all problems: ``file:line: dotted.key: the problem; the allowed values``.
    """
    if isinstance(source, Config):
        return source
    if source is None:
        return Config()
    from ..config.read import read_config  # only a configuration that is written loads the readers

    return read_config(source, Config)


def parse_config(text: str, where: str = IN_PYTHON) -> Config:
    """Return the configuration that the YAML text describes; ``where`` names the file in messages."""
    from ..config.read import read_text

    return read_text(text, where, Config)
