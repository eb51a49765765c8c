"""The ``sinks:`` key: a section for each sink that is found, built-in or of another package.

The sinks are imported by name, not by an import statement: they come later than the configuration in the order of the
package, and a sink is added there without a change here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import Field, create_model, field_validator

from .._options import Options

logger = logging.getLogger("autoprof")


class _Kind(Protocol):
    """The part of ``autoprof.sinks.SinkKind`` that the configuration needs."""

    options: type[Options]
    extra: str | None
    default: bool


def _kinds() -> Mapping[str, _Kind]:
    """Return the kinds by key: those that are on by default first."""
    found: dict[str, _Kind] = {}
    for name, kind in import_module("autoprof.sinks").SINKS.parts.items():
        if name.isidentifier() and not name.startswith("_"):
            found[name] = kind
        else:
            logger.warning("sink %r of another package: the name cannot be a key; it must be an identifier", name)
    return dict(sorted(found.items(), key=lambda item: not item[1].default))


class SinksBase(Options):
    """Outputs of the steps. A sink that is named is on, with its defaults where its value is empty."""

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_switch(cls, value: Any) -> Any:
        if isinstance(value, bool):
            word = str(value).lower()
            raise ValueError(f"{word} is a boolean; allowed: the sink's options, {{}} for its defaults, or no key")
        return value

    @classmethod
    def all_with_defaults(cls) -> Sinks:
        """Return the sinks of a configuration that has no `sinks` key."""
        return Sinks(**{name: kind.options() for name, kind in _KINDS.items() if kind.default})


_KINDS = _kinds()

if TYPE_CHECKING:

    class Sinks(SinksBase):
        """The fields are known only when the sinks are found."""

        def __init__(self, **sinks: Options | None) -> None: ...

        def __getattr__(self, name: str) -> Any: ...

else:

    def _description(kind: _Kind) -> str:
        first = " ".join(kind.options.__doc__.split("\n\n")[0].split()) if kind.options.__doc__ else ""
        return f"{first.removesuffix('.')}; needs the extra `{kind.extra}`." if kind.extra else first

    Sinks = create_model(
        "Sinks",
        __base__=SinksBase,
        __module__=__name__,
        __doc__=SinksBase.__doc__,
        **{
            name: (kind.options | None, Field(default=None, description=_description(kind)))
            for name, kind in _KINDS.items()
        },
    )
