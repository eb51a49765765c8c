"""Whether a forward may be run once more on a copy: its source is read, nothing of it is run.

A copy keeps apart what belongs to the model. What a forward writes elsewhere (a global list, an attribute of a class, a
file) it would write again, and fake tensors with it. Code that may do so is refused, with the place named: better no
figure than a trace. What is read: every forward of a class that is not torch's, the methods, functions and classes
that it names, and those that these name.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import logging
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import _lru_cache_wrapper, partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import nn

from .trusted import (
    CHANGES,
    CONSTANT_IN,
    CONSTANTS,
    CONTAINERS,
    FUNCTIONS,
    OF_C,
    READERS,
    READS,
    REFUSED,
    TRUSTED,
    WRITES,
)


class _Impure(Exception):
    """The message says what, and where."""


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
        for module in modules:
            reader.read_module(module)
    except _Impure as error:
        reader.found.reason = str(error)
    except RecursionError:
        reader.found.reason = "the model's code is nested too deeply to be read"
    return reader.found


class _Reader:
    def __init__(self) -> None:
        self.found = Findings()
        self._seen: set[CodeType] = set()
        self._classes: set[type[Any]] = set()

    def read_module(self, module: nn.Module) -> None:
        """Read the forward of a module, and what it does with objects of its own that are no modules."""
        cls = type(module)
        for value in vars(module).values():
            if isinstance(value, (FunctionType, MethodType)):
                self._function(value, cls)
            elif not isinstance(value, (*CONSTANTS, *CONTAINERS, tuple, nn.Module)):
                self._class(type(value))
        if cls in self._classes:
            return
        self._classes.add(cls)
        for method in ("forward", "__call__"):
            function = getattr(cls, method, None)
            if isinstance(function, FunctionType):
                self._function(function, cls)

    def _class(self, cls: type[Any]) -> None:
        """Read all of a class that is no module's: which of its methods are called is not known."""
        if cls in self._classes or _trusted(cls):
            return
        self._classes.add(cls)
        for base in cls.__mro__:
            if _trusted(base):
                continue
            for value in vars(base).values():
                function = getattr(value, "__func__", getattr(value, "fget", value))
                if isinstance(function, FunctionType) and not (_is_record(base) and _is_made(function)):
                    self._function(function, cls)

    def _function(self, function: Any, cls: type[Any] | None = None) -> None:
        function = inspect.unwrap(getattr(function, "__func__", function))
        if not isinstance(function, FunctionType) or _trusted(function) or function.__code__ in self._seen:
            return
        self._seen.add(function.__code__)
        if len(self._seen) > FUNCTIONS:
            raise _Impure(f"the model's code is more than {FUNCTIONS} functions")
        _Body(self, function, cls).read()

    def value(self, value: Any, where: str, name: str) -> Iterator[Any]:
        """Take a value from outside of a function; yield it where its use has to be looked at."""
        if isinstance(value, _lru_cache_wrapper):
            if value not in self.found.caches:
                self.found.caches.append(value)
            self._function(value.__wrapped__)
        elif isinstance(value, logging.Logger):
            if value not in self.found.loggers:
                self.found.loggers.append(value)
        elif isinstance(value, (FunctionType, MethodType)):
            self._function(value)
        elif isinstance(value, type):
            if not issubclass(value, nn.Module):
                self._class(value)
            elif not _trusted(value):
                self._function(value.__init__)
                self._function(value.forward)
        elif isinstance(value, (tuple, partial)):
            for item in value if isinstance(value, tuple) else (value.func, *value.args, *value.keywords.values()):
                yield from self.value(item, where, name)
        elif isinstance(value, nn.Module):
            raise _Impure(f"{where} calls {name}, a module outside of the model")
        elif not isinstance(value, (*CONSTANTS, *OF_C)) and type(value).__module__.split(".")[0] not in CONSTANT_IN:
            yield value


class _Body:
    """One function, read through its source."""

    def __init__(self, reader: _Reader, function: FunctionType, cls: type[Any] | None) -> None:
        self._reader = reader
        self._function = function
        self._class = cls
        self._where = function.__qualname__
        self._locals = _local_names(function.__code__)
        self._above: dict[ast.AST, ast.AST] = {}

    def read(self) -> None:
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(self._function)))
        except (OSError, TypeError, SyntaxError, ValueError):
            raise _Impure(f"the source of {self._where} cannot be read") from None
        for above in ast.walk(tree):
            for below in ast.iter_child_nodes(above):
                self._above[below] = above
        body = tree.body[0]
        apart = {id(one) for top in _not_run(tree, body) for one in ast.walk(top)}
        for node in ast.walk(tree):
            if id(node) not in apart:
                self._node(node)

    def _node(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            raise _Impure(f"{self._where} sets {', '.join(node.names)} outside of itself")
        if isinstance(node, ast.Name):
            self._name(node)
        elif isinstance(node, ast.Attribute):
            self._attribute(node)

    def _name(self, node: ast.Name) -> None:
        if node.id in self._locals:
            return
        found, value = self._lookup(node.id)
        if not found:
            return
        if getattr(builtins, node.id, None) is value:
            if node.id in REFUSED:
                raise _Impure(f"{self._where} calls {node.id}")
            return
        top, name, last = self._resolve(node, value)
        if isinstance(top, ast.Attribute) and isinstance(top.ctx, (ast.Store, ast.Del)):
            raise _Impure(f"{self._where} sets {name}")
        for odd in self._reader.value(last, self._where, name):
            if not self._only_reads(top):
                raise _Impure(f"{self._where} may change {name}, a {type(odd).__name__} outside of the model")

    def _resolve(self, node: ast.expr, value: Any) -> tuple[ast.expr, str, Any]:
        """Follow ``package.module.name`` through modules and classes; return the end, its name, what stands there."""
        name = node.id if isinstance(node, ast.Name) else "?"
        while isinstance(value, (ModuleType, type)) and isinstance(above := self._above.get(node), ast.Attribute):
            node, name = above, f"{name}.{above.attr}"
            try:
                value = inspect.getattr_static(value, above.attr)
            except AttributeError:
                value = getattr(value, above.attr, None)
            if isinstance(above.ctx, (ast.Store, ast.Del)):
                break
        if isinstance(value, ModuleType):
            value = None  # handed on as a whole: what is called of it is seen where it is called
        return node, name, value.__func__ if isinstance(value, (staticmethod, classmethod)) else value

    def _attribute(self, node: ast.Attribute) -> None:
        if node.attr in WRITES and isinstance(self._above.get(node), ast.Call):
            raise _Impure(f"{self._where} calls .{node.attr}()")
        base, stored = node.value, isinstance(node.ctx, (ast.Store, ast.Del))
        if stored and (_is_call_of(base, "type") or (isinstance(base, ast.Attribute) and base.attr == "__class__")):
            raise _Impure(f"{self._where} sets {node.attr} of a class")
        if self._class is None or stored or not (isinstance(base, ast.Name) and base.id in ("self", "cls")):
            return
        if base.id == "self" and node.attr in ("forward", "__call__"):
            return
        value = inspect.getattr_static(self._class, node.attr, None)
        function: Any = getattr(value, "fget", getattr(value, "__func__", value))
        if isinstance(function, FunctionType):
            self._reader._function(function, self._class)
        elif isinstance(value, _lru_cache_wrapper):
            raise _Impure(f"{self._where} uses {node.attr}, a cache that holds the module")
        elif isinstance(value, CONTAINERS) and not self._only_reads(node):
            raise _Impure(f"{self._where} may change {node.attr}, which all modules of its class share")

    def _lookup(self, name: str) -> tuple[bool, Any]:
        function = self._function
        for free, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            if free == name:
                try:
                    value = cell.cell_contents
                except ValueError:
                    return False, None
                return name != "__class__", value
        if name in function.__globals__:
            return True, function.__globals__[name]
        return hasattr(builtins, name), getattr(builtins, name, None)

    def _only_reads(self, node: ast.expr) -> bool:
        """Tell whether what is done with a container, as far as it is seen here, changes nothing."""
        above = self._above.get(node)
        if isinstance(above, ast.Subscript) and above.value is node:
            return isinstance(above.ctx, ast.Load) and not self._changed(above)
        if isinstance(above, ast.Attribute):
            called = isinstance(self._above.get(above), ast.Call)
            return isinstance(above.ctx, ast.Load) and (above.attr in READS if called else not self._changed(above))
        if isinstance(above, ast.Call) and node in above.args:
            return isinstance(above.func, ast.Name) and above.func.id in READERS
        return isinstance(above, (ast.Compare, ast.For, ast.comprehension, ast.BoolOp, ast.UnaryOp, ast.If, ast.IfExp))

    def _changed(self, item: ast.expr) -> bool:
        """Tell whether what was taken out of a container is itself changed on the spot."""
        above = self._above.get(item)
        if isinstance(above, (ast.Subscript, ast.Attribute)) and above.value is item:
            if not isinstance(above.ctx, ast.Load):
                return True
            called = isinstance(above, ast.Attribute) and isinstance(self._above.get(above), ast.Call)
            if called and isinstance(above, ast.Attribute):
                return above.attr in CHANGES
            return self._changed(above)
        return isinstance(above, ast.AugAssign) and above.target is item


def _not_run(tree: ast.AST, body: ast.AST) -> Iterator[ast.AST]:
    """Yield what does not run with a call: the function's decorators, and annotations."""
    yield from getattr(body, "decorator_list", ())
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if (said := getattr(node, name, None)) is not None:
                yield said


def _is_record(cls: type[Any]) -> bool:
    return hasattr(cls, "__dataclass_fields__") or hasattr(cls, "_fields")


def _is_made(function: FunctionType) -> bool:
    """Tell whether a method was generated, as those of a dataclass are."""
    inner = inspect.unwrap(function)
    return not isinstance(inner, FunctionType) or inner.__code__.co_filename.startswith("<")


def _local_names(code: CodeType) -> set[str]:
    names = {*code.co_varnames, *code.co_cellvars}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _local_names(constant)
    return names


def _is_call_of(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _trusted(value: Any) -> bool:
    owner = getattr(value, "__module__", None) if not isinstance(value, ModuleType) else value.__name__
    if not isinstance(owner, str):
        owner = type(value).__module__
    package = owner.split(".")[0]
    if package == "builtins" and isinstance(value, FunctionType):
        return False  # code that was executed from a text, without the name of a module
    own = package == "autoprof" and not owner.startswith("autoprof.demo")
    return own or package.lstrip("_") in TRUSTED
