"""What every part of a configuration has in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """Base of every part of a configuration: frozen, no unknown keys, the docstring under a field documents it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
