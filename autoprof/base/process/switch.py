"""The environment's switch: ``AUTOPROF=0`` makes every session inert, also against the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SWITCH: Final = "AUTOPROF"


def is_off(environment: Mapping[str, str]) -> bool:
    """Return whether the environment switches autoprof off."""
    return environment.get(SWITCH, "").strip().lower() in ("0", "off", "false", "no")
