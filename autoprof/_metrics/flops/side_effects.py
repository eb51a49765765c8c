"""Side effects of a model's code: may its forward be run once more on a copy? The source is read, nothing is run.

A copy of the model has its own parameters, buffers and attributes. A forward that writes elsewhere (a global list, an
attribute of a class, a file) would write there again, and store fake tensors that break the next real step. Code that
may do so is refused and named: no figure is better than a broken training. The reader follows every forward of a class
outside torch, the methods, functions and classes that it names, and those that these name.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import logging
import sys
import textwrap
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import _lru_cache_wrapper, partial
from itertools import islice
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, Final

import numpy as np
import torch
from torch import nn

FUNCTIONS: Final = 2000
"""Functions that are read, at most; a larger model is not counted."""
ITEMS: Final = 64
"""Items of a module's container that are read."""
UNCALLED: Final = frozenset(
    {
        "__repr__", "__str__", "__del__", "__reduce__", "__getstate__", "__setstate__", "__sizeof__",
        "__init_subclass__", "__set_name__",
    }
)  # fmt: skip
"""Special methods that Python does not call during a forward."""
PURE_PACKAGES: Final = (
    {"torch", "torchvision", "torchaudio", "numpy", "einops", "opt_einsum", "typing_extensions", "packaging"}
    | set(sys.stdlib_module_names)
) - {"subprocess", "socket", "shutil", "multiprocessing", "queue", "threading", "ctypes", "sqlite3", "shelve"}
"""Packages whose functions keep no reference to their arguments, except those in ``WRITERS``."""
PURE_PARTS: Final = ("transformers.utils", "accelerate.state", "accelerate.utils.operations")
"""Subpackages treated alike: transformers collects a model's outputs only while its call lasts, and accelerate sends
losses to other ranks."""
WRITERS: Final = frozenset(
    {
        "save", "savez", "savez_compressed", "savetxt", "tofile", "dump", "write", "writelines", "write_text",
        "write_bytes", "writerow", "system", "popen", "unlink", "makedirs", "mkdir", "put", "put_nowait", "send",
        "imsave", "savefig", "add_scalar", "add_scalars", "add_image", "add_histogram", "log_metrics", "log_dict",
    }
)  # fmt: skip
"""Names of methods and functions that write to files, pipes, queues or metric loggers, of any class."""
REFUSED: Final = frozenset({"print", "open", "input", "exec", "eval", "compile", "globals", "breakpoint", "__import__"})
"""Built-in functions with an effect outside, or whose effect is not readable from the source."""
READ_METHODS: Final = frozenset({"get", "items", "keys", "values", "index", "count", "copy", "__len__", "__contains__"})
"""Methods of containers that only read."""
WRITE_METHODS: Final = frozenset(
    {"append", "extend", "add", "update", "setdefault", "pop", "insert", "clear", "remove"}
)
"""Methods that change an item taken out of a container."""
READ_FUNCTIONS: Final = frozenset(
    {"len", "sorted", "min", "max", "sum", "any", "all", "isinstance", "enumerate", "zip"}
)
"""Built-in functions that only read their arguments."""
CONTAINERS: Final = (list, dict, set, deque, bytearray)
CONSTANTS: Final = (
    str, bytes, int, float, complex, type(None), type(...), type(NotImplemented), slice, range, frozenset, Enum,
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, torch.Tensor,
)  # fmt: skip
CONSTANT_IN: Final = frozenset({"torch", "typing", "types", "_thread", "numpy"})
"""Packages whose objects keep no reference to arguments, except containers and arrays."""
NATIVE: Final = (
    BuiltinFunctionType, GetSetDescriptorType, MethodDescriptorType, ClassMethodDescriptorType, WrapperDescriptorType,
    MethodWrapperType, type(torch.ops.aten), type(torch.ops.aten.mm),
)  # fmt: skip
"""Callables without source: kernels and built-in functions. An operator of torch is counted when it runs."""


class SideEffect(Exception):
    """Code may write outside of the model, or has no readable source; the message names the effect and the place."""


@dataclass(slots=True)
class SideEffects:
    """A ``reason`` not to run the model, or None; ``functools`` caches that it may fill; loggers that it may use."""

    reason: str | None = None
    caches: list[Any] = field(default_factory=list)
    loggers: list[logging.Logger] = field(default_factory=list)


def find_side_effects(modules: Iterable[nn.Module]) -> SideEffects:
    """Read the source of all code that a call of these modules may run."""
    reader = _CodeReader()
    try:
        reader.read(modules)
    except SideEffect as error:
        reader.found.reason = str(error)
    except Exception as error:  # a source file may have any content
        reader.found.reason = f"the model's code cannot be read: {type(error).__name__}: {error}"
    return reader.found


class _CodeReader:
    """Read all code that is reachable from the forwards.

    The object of a method call is unknown without running it: every method of that name is read, in all known classes.
    """

    def __init__(self) -> None:
        self.found = SideEffects()
        self.names: set[str] = set()
        """Every attribute name in the code."""
        self._seen: set[tuple[CodeType, int | None]] = set()
        self._classes: dict[type[Any], set[str]] = {}

    def read(self, modules: Iterable[nn.Module]) -> None:
        """Read the code of these modules, and all that it names, until nothing new is named."""
        for module in modules:
            self._module(module)
        before = -1
        while before != (before := len(self.names) + len(self._classes)):
            for cls, done in list(self._classes.items()):
                self._methods(cls, done)

    def _module(self, module: nn.Module) -> None:
        cls = type(module)
        for name, value in vars(module).items():
            if not name.endswith("_hooks"):  # the copy has no hooks
                self._object(value, cls, 2)
        if cls not in self._classes and not is_pure(cls):
            self._classes[cls] = set()
            self.function(cls.forward, cls)

    def _object(self, value: Any, cls: type[Any], depth: int) -> None:
        """Read an attribute of a module that is neither a tensor nor a module."""
        if isinstance(value, (FunctionType, MethodType)):
            self.function(value, cls)
        elif isinstance(value, (list, tuple, dict)) and depth:
            for item in islice(value.values() if isinstance(value, dict) else value, ITEMS):
                self._object(item, cls, depth - 1)
        elif not isinstance(value, (*CONSTANTS, *CONTAINERS, tuple, nn.Module)):
            self._class(type(value))

    def _class(self, cls: type[Any]) -> None:
        if not is_pure(cls):
            self._classes.setdefault(cls, set())

    def _methods(self, cls: type[Any], done: set[str]) -> None:
        """Read the methods of a class that the code names, or that Python calls implicitly."""
        plain = not issubclass(cls, nn.Module)
        for base in cls.__mro__:
            if is_pure(base):
                continue
            for name, value in vars(base).items():
                wanted = name in self.names or (plain and name.startswith("__") and name not in UNCALLED)
                function = getattr(value, "__func__", getattr(value, "fget", value))
                if not wanted or name in done or not isinstance(function, FunctionType):
                    continue
                if not (_is_record(base) and _is_generated(function)):
                    self.function(function, cls)
            done |= self.names & set(vars(base))

    def function(self, function: Any, cls: type[Any] | None = None, held: Any = None) -> None:
        """Read a function, below decorators of pure packages."""
        function = getattr(function, "__func__", function)
        while isinstance(function, FunctionType) and is_pure(function) and hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        if not isinstance(function, FunctionType) or is_pure(function):
            return
        key = (function.__code__, None if held is None else id(held))
        if key in self._seen:
            return
        self._seen.add(key)
        if len(self._seen) > FUNCTIONS:
            raise SideEffect(f"the model's code is more than {FUNCTIONS} functions")
        _FunctionReader(self, function, cls, held).read()

    def value(self, value: Any, where: str, name: str) -> Iterator[Any]:
        """Read a global or closure value of a function; yield it where its use has to be checked."""
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
            if issubclass(value, nn.Module) and not is_pure(value):
                self.function(value.__init__)
                self.function(value.forward)
        elif isinstance(value, (tuple, partial)):
            for item in value if isinstance(value, tuple) else (value.func, *value.args, *value.keywords.values()):
                yield from self.value(item, where, name)
        elif isinstance(value, nn.Module):
            if _has_state(value):
                raise SideEffect(f"{where} calls {name}, a module outside of the model")
            self.function(type(value).forward, type(value), held=value)
        elif isinstance(value, np.ndarray) or not (
            isinstance(value, (*CONSTANTS, *NATIVE))
            or type(value) is object
            or type(value).__module__.split(".")[0] in CONSTANT_IN
        ):
            if isinstance(value, CONTAINERS):  # functions in it may be called
                self._object([*value.values()] if isinstance(value, dict) else [*value], object, 1)
            yield value


class _FunctionReader:
    """Read the source of one function."""

    def __init__(
        self, reader: _CodeReader, function: FunctionType, cls: type[Any] | None = None, held: Any = None
    ) -> None:
        self._reader = reader
        self._function = function
        self._class = cls
        self._held = held
        """The object outside of the model whose method this is."""
        self._first = next(iter(function.__code__.co_varnames), "")
        self._where = function.__qualname__
        self._locals = _local_names(function.__code__)
        self._above: dict[ast.AST, ast.AST] = {}

    def read(self) -> None:
        """Check all names of the function. Raises ``SideEffect``."""
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(self._function.__code__)))
        except (OSError, TypeError, SyntaxError, ValueError):
            raise SideEffect(f"the source of {self._where} cannot be read") from None
        for above in ast.walk(tree):
            for below in ast.iter_child_nodes(above):
                self._above[below] = above
        skipped = {id(one) for top in _not_run(tree, tree.body[0]) for one in ast.walk(top)}
        for node in ast.walk(tree):
            if id(node) not in skipped:
                self._node(node)

    def _node(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            raise SideEffect(f"{self._where} sets {', '.join(node.names)} outside of itself")
        if isinstance(node, ast.Name):
            self._name(node)
        elif isinstance(node, ast.Attribute):
            self._attribute(node)
        elif isinstance(node, ast.ClassDef):
            self._reader.names |= {"__init_subclass__", "__set_name__"}

    def _name(self, node: ast.Name) -> None:
        if node.id in self._locals:
            if node.id == self._first and self._held is not None and not self._may_read(node, self._held):
                raise SideEffect(f"{self._where} may change a {type(self._held).__name__} outside of the model")
            return
        found, value = self._lookup(node.id)
        if not found:
            return
        if getattr(builtins, node.id, None) is value:
            if node.id in REFUSED:
                raise SideEffect(f"{self._where} calls {node.id}")
            return
        top, name, last = self._resolve(node, value)
        if isinstance(top, ast.Attribute) and isinstance(top.ctx, (ast.Store, ast.Del)):
            raise SideEffect(f"{self._where} sets {name}")
        for outside in self._reader.value(last, self._where, name):
            if not self._may_read(top, outside):
                raise SideEffect(f"{self._where} may change {name}, a {type(outside).__name__} outside of the model")

    def _resolve(self, node: ast.expr, value: Any) -> tuple[ast.expr, str, Any]:
        """Follow ``package.module.name`` through modules and classes; return the last node, its name, its value."""
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
            value = None  # a module passed as a value: calls of its functions are checked where they are made
        return node, name, value.__func__ if isinstance(value, (staticmethod, classmethod)) else value

    def _attribute(self, node: ast.Attribute) -> None:
        if node.attr != "__init__":  # of the superclass: the model exists already
            self._reader.names.add(node.attr)
        if node.attr in WRITERS and isinstance(self._above.get(node), ast.Call):
            raise SideEffect(f"{self._where} calls .{node.attr}()")
        base, stored = node.value, isinstance(node.ctx, (ast.Store, ast.Del))
        if stored and (_is_call_of(base, "type") or (isinstance(base, ast.Attribute) and base.attr == "__class__")):
            raise SideEffect(f"{self._where} sets {node.attr} of a class")
        if self._class is None or self._held is not None or stored or not isinstance(base, ast.Name):
            return
        if base.id not in ("self", "cls") or (base.id == "self" and node.attr in ("forward", "__call__")):
            return
        value = inspect.getattr_static(self._class, node.attr, None)
        function: Any = getattr(value, "fget", getattr(value, "__func__", value))
        if isinstance(function, FunctionType):
            self._reader.function(function, self._class)
        elif isinstance(value, _lru_cache_wrapper):
            raise SideEffect(f"{self._where} uses {node.attr}, a cache that holds the module")
        elif isinstance(value, CONTAINERS) and not self._only_reads(node):
            raise SideEffect(f"{self._where} may change {node.attr}, which all modules of its class share")

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

    def _may_read(self, node: ast.expr, outside: Any) -> bool:
        """Return whether this use of an object outside of the model changes neither it nor its contents."""
        if isinstance(outside, CONTAINERS):
            return self._only_reads(node) and (_is_flat(outside) or isinstance(self._above.get(node), ast.Compare))
        above = self._above.get(node)
        if isinstance(above, ast.Subscript) and above.value is node:
            return isinstance(above.ctx, ast.Load) and self._is_read_by("__getitem__", outside)
        if not isinstance(above, ast.Attribute):
            return isinstance(above, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.If, ast.IfExp))
        if not isinstance(above.ctx, ast.Load):
            return False
        member = inspect.getattr_static(outside, above.attr, None)
        if isinstance(member, CONTAINERS):
            return self._may_read(above, member)
        return isinstance(member, (*CONSTANTS, *NATIVE, type)) or self._is_read_by(above.attr, outside)

    def _is_read_by(self, name: str, outside: Any) -> bool:
        """Read a method or property of an object outside of the model; it must not change the object."""
        member = inspect.getattr_static(type(outside), name, None)
        function = getattr(member, "fget", member)
        if not isinstance(function, FunctionType):
            return False
        self._reader.function(function, type(outside), held=outside)
        return True

    def _only_reads(self, node: ast.expr) -> bool:
        """Return whether this use of a container, as far as the expression shows, changes nothing."""
        above = self._above.get(node)
        if isinstance(above, ast.Subscript) and above.value is node:
            return isinstance(above.ctx, ast.Load) and not self._changed(above)
        if isinstance(above, ast.Attribute):
            called = isinstance(self._above.get(above), ast.Call)
            return isinstance(above.ctx, ast.Load) and (
                above.attr in READ_METHODS if called else not self._changed(above)
            )
        if isinstance(above, ast.Call) and node in above.args:
            return isinstance(above.func, ast.Name) and above.func.id in READ_FUNCTIONS
        return isinstance(above, (ast.Compare, ast.For, ast.comprehension, ast.BoolOp, ast.UnaryOp, ast.If, ast.IfExp))

    def _changed(self, item: ast.expr) -> bool:
        """Return whether an item taken out of a container is changed in the same expression."""
        above = self._above.get(item)
        if isinstance(above, (ast.Subscript, ast.Attribute)) and above.value is item:
            if not isinstance(above.ctx, ast.Load):
                return True
            called = isinstance(above, ast.Attribute) and isinstance(self._above.get(above), ast.Call)
            if called and isinstance(above, ast.Attribute):
                return above.attr in WRITE_METHODS
            return self._changed(above)
        return isinstance(above, ast.AugAssign) and above.target is item


def _has_state(module: nn.Module) -> bool:
    """Return whether a call of a module may change its tensors, call another module, or call a hook."""
    state = (module._parameters, module._buffers, module._modules, module._forward_hooks, module._forward_pre_hooks)
    return any(state)


def _is_flat(container: Any) -> bool:
    """Return whether a container has only immutable items, so that an alias of an item does no harm."""
    values = container.values() if isinstance(container, dict) else container
    return all(isinstance(one, (*CONSTANTS, *NATIVE, type, FunctionType, partial)) for one in values)


def _not_run(tree: ast.AST, body: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that a call does not run: the function's decorators, and annotations."""
    yield from getattr(body, "decorator_list", ())
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if (annotation := getattr(node, name, None)) is not None:
                yield annotation


def _local_names(code: CodeType) -> set[str]:
    names = {*code.co_varnames, *code.co_cellvars}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _local_names(constant)
    return names


def _is_call_of(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def is_pure(value: Any) -> bool:
    """Return whether a module, function or class belongs to a package without side effects."""
    if isinstance(value, FunctionType):  # the module with its source; a decorator may have changed __module__
        owner = value.__globals__.get("__name__", "")
    else:
        owner = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    package = owner.split(".")[0] if isinstance(owner, str) else ""
    if package == "builtins" and (isinstance(value, FunctionType) or getattr(value, "__dictoffset__", None)):
        return False  # code executed from a string, without a module name
    own = package == "autoprof" and not owner.startswith("autoprof.demo")
    own = own or (isinstance(owner, str) and owner.startswith(PURE_PARTS))
    return own or package in PURE_PACKAGES or package.lstrip("_") in PURE_PACKAGES


def _is_record(cls: type[Any]) -> bool:
    return hasattr(cls, "__dataclass_fields__") or hasattr(cls, "_fields")


def _is_generated(function: FunctionType) -> bool:
    """Return whether a method was generated, as those of a dataclass are."""
    inner = inspect.unwrap(function)
    return not isinstance(inner, FunctionType) or inner.__code__.co_filename.startswith("<")
