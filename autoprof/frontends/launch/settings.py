"""The settings of ``autoprof run``, passed to the program's process and to those it starts by the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Final, NamedTuple

VARIABLE: Final = "AUTOPROF_RUN"
"""The environment variable that holds the settings."""


class LaunchSettings(NamedTuple):  # no dataclass: every process that a program starts would import ``inspect``
    """Where ``autoprof run`` was called, and its options."""

    pid: int
    """The process that the command becomes; others with these settings were started by it."""
    folder: str
    """The working directory of the command: the program may change its own."""
    config: str | None = None
    output: str | None = None
    name: str | None = None
    """The name that the ranks of a run share, where no launcher started the command once for each rank."""

    def write(self, environment: MutableMapping[str, str]) -> None:
        """Add the settings to an environment, and the folder that makes Python read them."""
        # The folder whose `sitecustomize` Python imports at its start.
        on_path = str(Path(__file__).resolve().parent / "on_path")
        search_path = "PYTHONPATH"
        environment[VARIABLE] = json.dumps(self._asdict())
        path = environment.get(search_path)
        others = [] if path is None else [one for one in path.split(os.pathsep) if one != on_path]
        environment[search_path] = os.pathsep.join([on_path, *others])

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> LaunchSettings | None:
        """Return the settings in an environment; None where there are none."""
        text = environment.get(VARIABLE)
        return None if text is None else cls(**json.loads(text))
