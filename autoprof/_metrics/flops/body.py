"""One function, read through its source: what it names from outside of itself, and whether it may change that."""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Iterator
from functools import _lru_cache_wrapper, partial
from types import CodeType, FunctionType, ModuleType
from typing import Any, Protocol

from .trusted import CHANGES, CONSTANTS, CONTAINERS, OF_C, READERS, READS, REFUSED, TRUSTED, TRUSTED_PARTS, WRITES


class Impure(Exception):
    """Code may write outside of the model, or cannot be read; the message says what, and where."""


class Reading(Protocol):
    """What a function's reading asks of the whole."""

    names: set[str]

    def function(self, function: Any, cls: type[Any] | None = None, held: Any = None) -> None:
        """Read another function."""

    def value(self, value: Any, where: str, name: str) -> Iterator[Any]:
        """Take a value from outside of a function; yield it where its use has to be looked at."""


class Body:
    """One function, read through its source."""

    def __init__(self, reader: Reading, function: FunctionType, cls: type[Any] | None = None, held: Any = None) -> None:
        self._reader = reader
        self._function = function
        self._class = cls
        self._held = held
        """The object from outside of the model that this is a method of."""
        self._first = next(iter(function.__code__.co_varnames), "")
        self._where = function.__qualname__
        self._locals = _local_names(function.__code__)
        self._above: dict[ast.AST, ast.AST] = {}

    def read(self) -> None:
        """Look at all that the function names. Raises ``Impure``."""
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(self._function.__code__)))
        except (OSError, TypeError, SyntaxError, ValueError):
            raise Impure(f"the source of {self._where} cannot be read") from None
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
            raise Impure(f"{self._where} sets {', '.join(node.names)} outside of itself")
        if isinstance(node, ast.Name):
            self._name(node)
        elif isinstance(node, ast.Attribute):
            self._attribute(node)

    def _name(self, node: ast.Name) -> None:
        if node.id in self._locals:
            if node.id == self._first and self._held is not None and not self._may_read(node, self._held):
                raise Impure(f"{self._where} may change a {type(self._held).__name__} outside of the model")
            return
        found, value = self._lookup(node.id)
        if not found:
            return
        if getattr(builtins, node.id, None) is value:
            if node.id in REFUSED:
                raise Impure(f"{self._where} calls {node.id}")
            return
        top, name, last = self._resolve(node, value)
        if isinstance(top, ast.Attribute) and isinstance(top.ctx, (ast.Store, ast.Del)):
            raise Impure(f"{self._where} sets {name}")
        for odd in self._reader.value(last, self._where, name):
            if not self._may_read(top, odd):
                raise Impure(f"{self._where} may change {name}, a {type(odd).__name__} outside of the model")

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
        if node.attr != "__init__":  # of the class above: the model is made
            self._reader.names.add(node.attr)
        if node.attr in WRITES and isinstance(self._above.get(node), ast.Call):
            raise Impure(f"{self._where} calls .{node.attr}()")
        base, stored = node.value, isinstance(node.ctx, (ast.Store, ast.Del))
        if stored and (_is_call_of(base, "type") or (isinstance(base, ast.Attribute) and base.attr == "__class__")):
            raise Impure(f"{self._where} sets {node.attr} of a class")
        if self._class is None or self._held is not None or stored or not isinstance(base, ast.Name):
            return
        if base.id not in ("self", "cls") or (base.id == "self" and node.attr in ("forward", "__call__")):
            return
        value = inspect.getattr_static(self._class, node.attr, None)
        function: Any = getattr(value, "fget", getattr(value, "__func__", value))
        if isinstance(function, FunctionType):
            self._reader.function(function, self._class)
        elif isinstance(value, _lru_cache_wrapper):
            raise Impure(f"{self._where} uses {node.attr}, a cache that holds the module")
        elif isinstance(value, CONTAINERS) and not self._only_reads(node):
            raise Impure(f"{self._where} may change {node.attr}, which all modules of its class share")

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

    def _may_read(self, node: ast.expr, odd: Any) -> bool:
        """Tell whether this use of an object from outside of the model changes neither it nor what it holds."""
        if isinstance(odd, CONTAINERS):
            return self._only_reads(node) and (_is_flat(odd) or isinstance(self._above.get(node), ast.Compare))
        above = self._above.get(node)
        if isinstance(above, ast.Subscript) and above.value is node:
            return isinstance(above.ctx, ast.Load) and self._is_read_by("__getitem__", odd)
        if not isinstance(above, ast.Attribute):
            return isinstance(above, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.If, ast.IfExp))
        if not isinstance(above.ctx, ast.Load):
            return False
        member = inspect.getattr_static(odd, above.attr, None)
        if isinstance(member, CONTAINERS):
            return self._may_read(above, member)
        return isinstance(member, (*CONSTANTS, type)) or self._is_read_by(above.attr, odd)

    def _is_read_by(self, name: str, odd: Any) -> bool:
        """Read a method or property of an object from outside of the model, which must change nothing of it."""
        member = inspect.getattr_static(type(odd), name, None)
        function = getattr(member, "fget", member)
        if not isinstance(function, FunctionType):
            return False
        self._reader.function(function, type(odd), held=odd)
        return True

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


def _is_flat(container: Any) -> bool:
    """Tell whether a container holds only what cannot be changed: an alias to one of its things does no harm."""
    values = container.values() if isinstance(container, dict) else container
    return all(isinstance(one, (*CONSTANTS, *OF_C, type, FunctionType, partial)) for one in values)


def _not_run(tree: ast.AST, body: ast.AST) -> Iterator[ast.AST]:
    """Yield what does not run with a call: the function's decorators, and annotations."""
    yield from getattr(body, "decorator_list", ())
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if (said := getattr(node, name, None)) is not None:
                yield said


def _local_names(code: CodeType) -> set[str]:
    names = {*code.co_varnames, *code.co_cellvars}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _local_names(constant)
    return names


def _is_call_of(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def trusted(value: Any) -> bool:
    """Tell whether a module, function or class belongs to a package that keeps nothing."""
    if isinstance(value, FunctionType):  # where it was written, not where a decorator says that it belongs
        owner = value.__globals__.get("__name__", "")
    else:
        owner = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    package = owner.split(".")[0] if isinstance(owner, str) else ""
    if package == "builtins" and (isinstance(value, FunctionType) or getattr(value, "__dictoffset__", None)):
        return False  # code that was executed from a text, without the name of a module
    own = package == "autoprof" and not owner.startswith("autoprof.demo")
    own = own or (isinstance(owner, str) and owner.startswith(TRUSTED_PARTS))
    return own or package in TRUSTED or package.lstrip("_") in TRUSTED
