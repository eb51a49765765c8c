"""Call a function once, when the program has imported a certain module."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class ImportHook:
    """A finder that waits for one module: it then removes itself, and the module has its ordinary loader."""

    def __init__(self, name: str, imported: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._imported = imported

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Called before each import; return None for all other modules."""
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        loader = None if spec is None else spec.loader
        if loader is None:
            return spec
        execute, imported = loader.exec_module, self._imported

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # the loader's own is found again
            execute(module)
            with suppress(Exception):
                imported(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
