"""Insert marks into the Python that inductor generates, and exchange its code for the copy with marks."""

from __future__ import annotations

import ast
import copy
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

from .kernels import Kernel

MARK: Final = "autoprof_mark"
"""The name of the function that marks, among the globals of generated code."""
FUSED: Final = ("cpp_fused", "triton_")
"""The beginnings of the names of kernels that inductor generates."""
KERNELS: Final = ("extern_kernels.", "torch.ops.", "aten.", *FUSED)
"""The beginnings of the names of kernels in generated code."""
MarkCode = Callable[[Kernel | None], int]
"""Return the code of the mark at the begin of a kernel; for None, of the one after the last kernel."""


class GeneratedCode:
    """The functions of one generated file that call kernels, each with its kernels by the position of the call."""

    def __init__(self, call: FunctionType, kernels: Sequence[Kernel]) -> None:
        self._globals: dict[str, Any] = call.__globals__
        self._path: str = self._globals["__file__"]
        waiting: dict[str, deque[Kernel]] = {}
        for kernel in kernels:
            waiting.setdefault(kernel.call, deque()).append(kernel)
        self.unknown: list[str] = []
        """The kernels whose calls the notes do not name."""
        self._functions: list[tuple[ast.FunctionDef, FunctionType, CodeType, Mapping[int, Kernel]]] = []
        tree = ast.parse(Path(self._path).read_text(encoding="utf-8"))
        for definition, function in _functions(tree, call):
            found: dict[int, Kernel] = {}
            for at, statement in enumerate(statements(definition.body)):
                if (joined := self._kernel_of(statement, waiting)) is not None:
                    found[at] = joined
            if found:
                self._functions.append((definition, function, function.__code__, found))
        self.missing = sum(map(len, waiting.values()))
        """The number of notes without a call in the file."""

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels whose calls were found, in the order of the file."""
        return [kernel for *_, found in self._functions for kernel in found.values()]

    def _kernel_of(self, statement: ast.stmt, waiting: Mapping[str, deque[Kernel]]) -> Kernel | None:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                name = dotted(node.func).removesuffix(".run")
                if waiting.get(name):
                    return waiting[name].popleft()
                if name.startswith(KERNELS):
                    self.unknown.append(name)
                    return Kernel(name, ())  # it belongs to the graph as a whole
        return None

    def with_marks(self, code: MarkCode) -> list[CodeType]:
        """Return the code of each function, with a mark where the next kernel has another code than the last one."""
        made = []
        for definition, _, original, found in self._functions:
            marked = _Marked(found, code).of(definition)
            module = compile(ast.Module([marked], []), self._path, "exec", dont_inherit=True)
            compiled = next(one for one in module.co_consts if isinstance(one, CodeType))
            made.append(compiled.replace(co_name=original.co_name, co_firstlineno=original.co_firstlineno))
        return made

    def exchange(self, codes: Sequence[CodeType], mark: Callable[[int], None]) -> bool:
        """Put the code with marks in place; return False where another session's is there."""
        if any(function.__code__ is not original for _, function, original, _ in self._functions):
            return False
        self._globals[MARK] = mark
        for (_, function, _, _), code in zip(self._functions, codes, strict=True):
            function.__code__ = code
        return True

    def put_back(self) -> None:
        """Put the original code back."""
        for _, function, original, _ in self._functions:
            function.__code__ = original


class _Marked:
    """Insert marks into a copy of a function."""

    def __init__(self, kernels: Mapping[int, Kernel], code: MarkCode) -> None:
        self._codes = [*(code(kernel) for kernel in kernels.values()), code(None)]
        self._positions = set(kernels)
        self._at = -1
        self._marked = 0

    def of(self, definition: ast.FunctionDef) -> ast.FunctionDef:
        """Return a copy of the function with marks, the first one before its first statement."""
        made = copy.deepcopy(definition)
        made.body = [self._mark(made.body[0], self._codes[0]), *self._insert(made.body)]
        return made

    def _insert(self, body: list[ast.stmt]) -> list[ast.stmt]:
        made = []
        for statement in body:
            self._at += 1
            is_kernel = self._at in self._positions
            made.append(statement)
            for inner in _bodies(statement):
                inner[:] = self._insert(inner)
            if is_kernel:
                self._marked += 1
                last, code = self._codes[self._marked - 1], self._codes[self._marked]
                if code != last:
                    made.append(self._mark(statement, code))
        return made

    def _mark(self, near: ast.stmt, code: int) -> ast.stmt:
        call = ast.Call(ast.Name(MARK, ast.Load()), [ast.Constant(code)], [])
        return ast.fix_missing_locations(ast.copy_location(ast.Expr(call), near))


def _functions(tree: ast.Module, call: FunctionType) -> Iterator[tuple[ast.FunctionDef, FunctionType]]:
    """Yield the functions of a generated file that are called with each graph: its partitions and ``call``."""
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Runner":
            found += [one for one in node.body if isinstance(one, ast.FunctionDef)]
    for definition in found:
        if definition.name == call.__name__:
            yield definition, call
        elif definition.name.startswith("partition_") and definition.name in call.__globals__:
            yield definition, call.__globals__[definition.name]


def _bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the blocks inside a statement."""
    for field in ("body", "orelse", "finalbody"):
        block = getattr(statement, field, None)
        if block:
            yield block


def statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a function in the order of the file, those inside blocks after the block."""
    for statement in body:
        yield statement if not any(_bodies(statement)) else ast.Pass()
        for block in _bodies(statement):
            yield from statements(block)


def dotted(node: ast.expr) -> str:
    """Return the name that an expression such as ``a.b.c`` spells, or nothing."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ""
