"""Whether a forward may be run once more on a copy: its source is read, nothing of it is run.

A copy keeps apart what belongs to the model. What a forward writes elsewhere (a global list, an attribute of a class, a
file) it would write again, and fake tensors with it. Code that may do so is refused, with the place named: better no
figure than a trace. What is read: every forward of a class that is not torch's, the methods, functions and classes
that it names, and those that these name.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import _lru_cache_wrapper, partial
from itertools import islice
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
from torch import nn

from .body import Body, Impure, trusted
from .trusted import CONSTANT_IN, CONSTANTS, CONTAINERS, FUNCTIONS, HELD, OF_C, UNCALLED


@dataclass(slots=True)
class Findings:
    """What a reading came to: a ``reason`` not to run the model, caches that it may fill, loggers that it may use."""

    reason: str | None = None
    caches: list[Any] = field(default_factory=list)
    loggers: list[logging.Logger] = field(default_factory=list)


def read_model(modules: Iterable[nn.Module]) -> Findings:
    """Read the source of everything that a call of these modules may run."""
    reader = _Reader()
    try:
        reader.read(modules)
    except Impure as error:
        reader.found.reason = str(error)
    except Exception as error:  # sources are files, which may be anything
        reader.found.reason = f"the model's code cannot be read: {type(error).__name__}: {error}"
    return reader.found


class _Reader:
    """Read from the forwards on. Which object a method is called on is not known: one of that name is read wherever."""

    def __init__(self) -> None:
        self.found = Findings()
        self.names: set[str] = set()
        """Every attribute that the code names."""
        self._seen: set[tuple[CodeType, int | None]] = set()
        self._classes: dict[type[Any], set[str]] = {}

    def read(self, modules: Iterable[nn.Module]) -> None:
        """Read what a call of these modules may run, until nothing new is named."""
        for module in modules:
            self._module(module)
        before = -1
        while before != (before := len(self.names) + len(self._classes)):
            for cls, done in list(self._classes.items()):
                self._methods(cls, done)

    def _module(self, module: nn.Module) -> None:
        cls = type(module)
        for name, value in vars(module).items():
            if not name.endswith("_hooks"):  # the copy has none
                self._object(value, cls, 2)
        if cls not in self._classes and not trusted(cls):
            self._classes[cls] = set()
            self.function(cls.forward, cls)

    def _object(self, value: Any, cls: type[Any], depth: int) -> None:
        """Take what a module holds that is neither a tensor nor a module."""
        if isinstance(value, (FunctionType, MethodType)):
            self.function(value, cls)
        elif isinstance(value, (list, tuple, dict)) and depth:
            for item in islice(value.values() if isinstance(value, dict) else value, HELD):
                self._object(item, cls, depth - 1)
        elif not isinstance(value, (*CONSTANTS, *CONTAINERS, tuple, nn.Module)):
            self._class(type(value))

    def _class(self, cls: type[Any]) -> None:
        if not trusted(cls):
            self._classes.setdefault(cls, set())

    def _methods(self, cls: type[Any], done: set[str]) -> None:
        """Read the methods of a class that are named somewhere, or that Python calls by itself."""
        plain = not issubclass(cls, nn.Module)
        for base in cls.__mro__:
            if trusted(base):
                continue
            for name, value in vars(base).items():
                wanted = name in self.names or (plain and name.startswith("__") and name not in UNCALLED)
                function = getattr(value, "__func__", getattr(value, "fget", value))
                if not wanted or name in done or not isinstance(function, FunctionType):
                    continue
                if not (_is_record(base) and _is_made(function)):
                    self.function(function, cls)
            done |= self.names & set(vars(base))

    def function(self, function: Any, cls: type[Any] | None = None, held: Any = None) -> None:
        """Read a function, and what a decorator that is trusted has wrapped."""
        function = getattr(function, "__func__", function)
        while isinstance(function, FunctionType) and trusted(function) and hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        if not isinstance(function, FunctionType) or trusted(function):
            return
        key = (function.__code__, None if held is None else id(held))
        if key in self._seen:
            return
        self._seen.add(key)
        if len(self._seen) > FUNCTIONS:
            raise Impure(f"the model's code is more than {FUNCTIONS} functions")
        Body(self, function, cls, held).read()

    def value(self, value: Any, where: str, name: str) -> Iterator[Any]:
        """Take a value from outside of a function; yield it where its use has to be looked at."""
        if isinstance(value, _lru_cache_wrapper):
            if value not in self.found.caches:
                self.found.caches.append(value)
            self.function(value.__wrapped__)
        elif isinstance(value, logging.Logger):
            if value not in self.found.loggers:
                self.found.loggers.append(value)
        elif isinstance(value, (FunctionType, MethodType)):
            self.function(value)
        elif isinstance(value, type):
            self._class(value)
            if issubclass(value, nn.Module) and not trusted(value):
                self.function(value.__init__)
                self.function(value.forward)
        elif isinstance(value, (tuple, partial)):
            for item in value if isinstance(value, tuple) else (value.func, *value.args, *value.keywords.values()):
                yield from self.value(item, where, name)
        elif isinstance(value, nn.Module):
            raise Impure(f"{where} calls {name}, a module outside of the model")
        elif isinstance(value, np.ndarray) or not (
            isinstance(value, (*CONSTANTS, *OF_C)) or type(value).__module__.split(".")[0] in CONSTANT_IN
        ):
            if isinstance(value, CONTAINERS):  # functions that it hands out may be called
                self._object([*value.values()] if isinstance(value, dict) else [*value], object, 1)
            yield value


def _is_record(cls: type[Any]) -> bool:
    return hasattr(cls, "__dataclass_fields__") or hasattr(cls, "_fields")


def _is_made(function: FunctionType) -> bool:
    """Tell whether a method was generated, as those of a dataclass are."""
    inner = inspect.unwrap(function)
    return not isinstance(inner, FunctionType) or inner.__code__.co_filename.startswith("<")
