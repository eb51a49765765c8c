"""The base of every section of the configuration. A part's options lie in the file of the part."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Options(BaseModel):
    """A section of the configuration: frozen, without unknown keys; the docstring below a field documents it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
