"""Parts that are added by adding one file: sinks, rules, devices, probes.

A built-in part is a module of its kind's package; its name has no leading underscore, and it holds the part under the
kind's attribute (``autoprof.sinks.jsonl.SINK``). Another package adds a part through an entry point of the kind's group
(``autoprof.sinks``) that names such an object. Neither is listed anywhere else.
"""

from __future__ import annotations

import logging
import sys
from functools import cached_property, lru_cache
from importlib import import_module, metadata
from pkgutil import iter_modules
from typing import Generic, TypeVar, cast

from .signals import raised_by_handler

logger = logging.getLogger("autoprof")

Part = TypeVar("Part")


class PartKind(Generic[Part]):
    """One kind of part: the package of the built-in ones, the attribute that holds each, the type it must have.

    The group of entry points has the package's name.
    """

    def __init__(self, word: str, package: str, attribute: str, type_: type[Part]) -> None:
        self.word = word
        self.package = package
        self._attribute = attribute
        self._type = type_
        self._failed: set[str] = set()

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """The names of the built-in modules, in alphabetical order. None of them is imported."""
        found = iter_modules(import_module(self.package).__path__)
        return tuple(sorted(one.name for one in found if not one.ispkg and not one.name.startswith("_")))

    @cached_property
    def entry_points(self) -> dict[str, metadata.EntryPoint]:
        """The entry points of installed packages by name; a built-in part keeps its name."""
        found = _installed(tuple(sys.path)).select(group=self.package)
        return {one.name: one for one in found if one.name not in self.modules}

    @cached_property
    def parts(self) -> dict[str, Part]:
        """All parts by name: the built-in ones, then those of other packages.

        A package whose part cannot be loaded is left out with one warning: it must not stop a training.
        """
        found = {name: self._built_in(name) for name in self.modules}
        for name, entry_point in self.entry_points.items():
            try:
                found[name] = self._checked(entry_point.load(), entry_point.value)
            except Exception as error:  # the other package's code may raise anything
                logger.warning("%s %r of another package: %s: %s", self.word, name, type(error).__name__, error)
        return found

    def exclude_failed(self, part: Part, error: Exception) -> None:
        """Log once that a part of another package raised; the caller goes on without it.

        The error of a built-in part is raised again, and so is one that a signal handler of the user's raised.
        """
        name = next((name for name, one in self.parts.items() if one is part), None)
        if name is None or name in self.modules or raised_by_handler(error):
            raise error
        if name not in self._failed:
            self._failed.add(name)
            logger.warning("%s %r of another package: %s: %s", self.word, name, type(error).__name__, error)

    def _built_in(self, name: str) -> Part:
        module = f"{self.package}.{name}"
        return self._checked(getattr(import_module(module), self._attribute), f"{module}.{self._attribute}")

    def _checked(self, part: object, where: str) -> Part:
        if not isinstance(part, self._type):
            raise TypeError(f"{where}: of type {type(part).__name__}; it must be a {self._type.__name__}")
        return part


@lru_cache(maxsize=1)
def _installed(path: tuple[str, ...]) -> metadata.EntryPoints:
    """Return the entry points of all packages on this ``sys.path``: one search serves every kind of part."""
    return cast(metadata.EntryPoints, metadata.entry_points())  # before Python 3.12 another class with ``select``
