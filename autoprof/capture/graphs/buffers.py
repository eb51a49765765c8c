"""Find the node of torch's graph that each kernel of a generated file computes, from the buffers between the calls.

The file and the graph are two forms of one program. Arguments and results are equal by position. From there more become
equal: a call of an operator is the one node of this operator with these inputs, these sizes and these source nodes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, Final

from .generated import FUSED, KERNELS, dotted, statements

_VIEWS: Final = frozenset(
    {"alias", "as_strided", "detach", "expand", "permute", "reshape", "select", "slice", "split", "split_with_sizes"}
    | {"squeeze", "t", "transpose", "unbind", "unsqueeze", "view", "_unsafe_view"}
)
"""The operators whose result is a part of their first input's memory."""
_SOURCES: Final = re.compile(r"#.*Source Nodes: \[(.*?)\]")
_PARAMETERS: Final = re.compile(r"(?:void\s+kernel|def \w+)\(([^)]*)\)")
_WRITTEN: Final = ("out_ptr", "in_out_ptr")
"""The beginnings of the names of parameters that a generated kernel writes to."""


@dataclass(eq=False, slots=True)
class _Value:
    """The content of a buffer between two writes, and its node once that is known."""

    sizes: tuple[str, ...] | None = None
    node: Any = None
    reader: Any = None
    """The node of the first operator that takes the value in."""
    parts: dict[str, _Value] = field(default_factory=dict)
    """The values of an operator with several results, by their positions."""
    behind: _Value | None = None
    """The value in the memory that a new variable takes over."""
    is_written: bool = False
    is_read: bool = False

    def content(self) -> _Value:
        """Return the value that was written last."""
        return self if self.is_written or self.behind is None else self.behind.content()


@dataclass(eq=False, slots=True)
class _Call:
    """A call of a kernel: its inputs by position, its outputs, and the source nodes in the comment before it."""

    name: str
    sources: frozenset[str] | None
    inputs: list[_Value | None]
    outputs: list[_Value]
    node: Any = None
    """The node of an operator's call."""

    @property
    def is_fused(self) -> bool:
        """Whether inductor has generated the kernel."""
        return self.name.startswith(FUSED)

    def nodes(self, operators: Set[str]) -> list[Any] | None:
        """Return the nodes that the kernel leaves to others; None where one of them is not certain.

        ``operators`` has those that have a call of their own. A generated kernel that is named for one of them, which
        reads its output, copies a value into the layout that this operator takes, and works for the operator.
        """
        if not self.is_fused:
            return None if self.node is None else [self.node]
        values = [value for value in self.outputs if value.is_read]
        found = [value.node for value in values]
        copies = [at for at, value in enumerate(values) if value.reader is not None and self._names(value.reader)]
        if len(copies) == 1:
            known = [node for at, node in enumerate(found) if node is not None and at != copies[0]]
            reader = found[copies[0]] = values[copies[0]].reader
            if self.sources is None and _aten(reader) in map(_aten, _ancestors(known, operators, last=False)):
                return None
        if not found or None in found or len(copies) > 1:
            return None
        return found if self._is_named_for(found, operators) else None

    def _names(self, node: Any) -> bool:
        """Return whether the comment, or else the name, of a generated kernel names an operator's node."""
        if self.sources is not None:
            return source_name(node) in self.sources
        return f"_{_aten(node)}_" in self.name

    def _is_named_for(self, nodes: Sequence[Any], operators: Set[str]) -> bool:
        """Return whether the name and the comment name these nodes, and none that they are not computed from."""
        inside = list(_ancestors(nodes, operators, last=self.sources is not None))
        known = {_aten(node) for node in inside} - {""} | _VIEWS
        names = "|".join(sorted(map(re.escape, known), key=len, reverse=True))
        if not re.fullmatch(rf"(cpp|triton_\w+?)_fused(_({names}))*_\d+", self.name):
            return False
        if not all(_aten(node) in self.name for node in nodes):
            return False
        if self.sources is None:
            return True
        own = {source_name(node) for node in nodes if node.op == "call_function"}
        return own <= self.sources <= {source_name(node) for node in inside}


def calls_of(path: str, graph: Any) -> list[tuple[str, list[Any] | None]]:
    """Return the calls of kernels in a generated file, in its order, each with its nodes; None where not certain."""
    file = _File(FilePath(path).read_text(encoding="utf-8"), graph)
    _join(file.calls, file.results, graph)
    operators = {_operator(call.node) for call in file.calls if call.node is not None}
    return [(call.name, call.nodes(operators)) for call in file.calls]


class _File:
    """The calls of a generated file and the values between them."""

    def __init__(self, text: str, graph: Any) -> None:
        self._lines = text.splitlines()
        self._placeholders = {node.name: node for node in graph.nodes if node.op == "placeholder"}
        self._copies = {
            node.args[0].name: node
            for node in graph.nodes
            if _operator(node) == "copy_" and node.args[0].op == "placeholder"
        }
        """The nodes that write to an input of the graph, by its name."""
        self._variables: dict[str, tuple[list[_Value], tuple[str, ...] | None]] = {}
        """The memory of each variable, which holds its present value, and its sizes."""
        self._around: dict[str, str] = {}
        """For a variable in the memory of another one that one, which is deleted at once where the memory is reused."""
        self._parameters: dict[str, list[str]] = {}
        self.calls: list[_Call] = []
        self.results: list[_Value | None] = []
        self._line = 0
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                self._define(node)
            elif isinstance(node, ast.FunctionDef) and node.name.startswith("partition_"):
                raise ValueError("a graph in parts")
            elif isinstance(node, ast.ClassDef) and node.name == "Runner":
                call = next(one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "call")
                if any(isinstance(one, (ast.If, ast.For, ast.While)) for one in ast.walk(call)):
                    raise ValueError("a graph with branches")
                for statement in statements(call.body):
                    self._statement(statement)

    def _define(self, node: ast.Assign) -> None:
        """Keep the names of a generated kernel's parameters."""
        texts = [
            one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant) and isinstance(one.value, str)
        ]
        found = [match for text in texts for match in _PARAMETERS.findall(text)]
        if found and isinstance(node.targets[0], ast.Name):
            names = (re.findall(r"\w+", re.split(r"(?<!:):(?!:)", one)[0]) for one in found[-1].split(","))
            self._parameters[node.targets[0].id] = [name[-1] for name in names if name]

    def _statement(self, statement: ast.stmt) -> None:
        call = next((one for one in ast.walk(statement) if isinstance(one, ast.Call) and _is_kernel(one)), None)
        if call is not None:
            self._call(statement, call)
        elif isinstance(statement, ast.Return) and isinstance(statement.value, ast.Tuple):
            self.results = [self._read(one) for one in statement.value.elts]
        elif isinstance(statement, ast.Assign):
            self._assign(statement.targets[0], statement.value)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            self._check(statement.value)
        elif isinstance(statement, ast.Delete):
            for one in statement.targets:
                if isinstance(one, ast.Name):
                    self._variables.pop(one.id, None)
        elif not isinstance(statement, ast.Pass):
            self._read_all(statement)

    def _check(self, call: ast.Call) -> None:
        """Take the sizes of an operator's result from the line that checks them."""
        name = dotted(call.func)
        if name == "assert_size_stride" and isinstance(call.args[0], ast.Name) and call.args[0].id in self._variables:
            memory, sizes = self._variables[call.args[0].id]
            sizes = memory[0].sizes = sizes or _sizes_in(call.args[1])
            self._variables[call.args[0].id] = memory, sizes
        elif not name.startswith("assert_"):
            self._overwrite(call)

    def _overwrite(self, inside: ast.AST) -> None:
        """Read all buffers in a piece of code, and expect it to have written them."""
        self._read_all(inside)
        for one in ast.walk(inside):
            if isinstance(one, ast.Name) and one.id in self._variables:
                memory, sizes = self._variables[one.id]
                memory[0] = _Value(sizes, is_written=True)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple):  # the arguments
            for one in target.elts:
                if isinstance(one, ast.Name):
                    node = self._placeholders.get(one.id)
                    sizes = None if node is None else _sizes_of(node)
                    self._variables[one.id] = [_Value(sizes, node, is_written=True)], sizes
            return
        if not isinstance(target, ast.Name):
            self._read_all(value)
            return
        name = dotted(value.func) if isinstance(value, ast.Call) else ""
        if name.startswith("empty_strided") and isinstance(value, ast.Call):
            sizes = _sizes_in(value.args[0])
            self._variables[target.id] = [_Value(sizes)], sizes
        elif (
            isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name) and value.value.id in self._variables
        ):
            memory, _ = self._variables[value.value.id]
            part = memory[0].parts.setdefault(ast.unparse(value.slice), _Value(is_written=True))
            self._variables[target.id] = [part], None
        elif (found := self._memory(value)) is not None:
            self._variables[target.id] = [_Value(found[1], behind=found[0][0])], found[1]
            self._around[target.id] = next(
                one.id for one in ast.walk(value) if isinstance(one, ast.Name) and one.id in self._variables
            )
        else:
            self._read_all(value)
            self._variables[target.id] = [_Value(is_written=True)], None

    def _call(self, statement: ast.stmt, call: ast.Call) -> None:
        name = dotted(call.func).removesuffix(".run")
        made = _Call(name, self._sources(statement), [], [])
        self.calls.append(made)
        if made.is_fused:
            for parameter, argument in zip(self._parameters.get(name, ()), call.args, strict=False):
                if parameter.startswith("in_out_ptr"):
                    self._read_in_place(argument)
                elif not parameter.startswith(_WRITTEN):
                    self._read(argument)
                if parameter.startswith(_WRITTEN):
                    made.outputs.append(self._write(argument))
            return
        flat = [one for argument in call.args for one in getattr(argument, "elts", [argument])]
        made.inputs = [self._read(one) for one in flat if _is_buffer(one)]
        for keyword in call.keywords:
            if keyword.arg == "out":
                made.outputs.append(self._write(keyword.value))
            else:
                self._read_all(keyword.value)
        if isinstance(statement, ast.Expr) and not made.outputs:
            self._overwrite(call)
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            made.outputs.append(_Value(is_written=True))
            self._variables[statement.targets[0].id] = [made.outputs[-1]], None

    def _sources(self, statement: ast.stmt) -> frozenset[str] | None:
        """Return the source nodes in the comment between the last kernel and this one."""
        begin, self._line = self._line, statement.end_lineno or statement.lineno
        for line in reversed(self._lines[begin : statement.lineno - 1]):
            if (found := _SOURCES.search(line)) is not None:
                return frozenset(found[1].split(", ")) - {""}
        return None

    def _memory(self, value: ast.expr) -> tuple[list[_Value], tuple[str, ...] | None] | None:
        """Return the memory and the sizes that an expression stands for."""
        if isinstance(value, ast.Name):
            return self._variables.get(value.id)
        if isinstance(value, ast.Call) and dotted(value.func) == "reinterpret_tensor":
            found = self._memory(value.args[0])
            return None if found is None else (found[0], _sizes_in(value.args[1]))
        return None

    def _read(self, value: ast.expr) -> _Value | None:
        found = self._memory(value)
        if found is None:
            self._read_all(value)
            return None
        content = found[0][0].content()
        content.is_read = True
        return content

    def _read_in_place(self, value: ast.expr) -> None:
        """Read what a kernel writes over: not where it has written it itself, in memory that it took over."""
        found = self._memory(value)
        before = None if found is None else found[0][0] if found[0][0].is_written else found[0][0].behind
        if before is not None:
            before.is_read |= before.is_written

    def _read_all(self, inside: ast.AST) -> None:
        for one in ast.walk(inside):
            if isinstance(one, ast.Name) and one.id in self._variables:
                self._variables[one.id][0][0].content().is_read = True

    def _write(self, value: ast.expr) -> _Value:
        found = self._memory(value)
        if found is None:
            self._read_all(value)
            return _Value(is_written=True, is_read=True)
        memory, sizes = found
        made = _Value(sizes, is_written=True)
        if isinstance(value, ast.Name) and value.id in self._placeholders:
            made.node, made.is_read = self._copies.get(value.id), True
        if not isinstance(value, ast.Name) or self._around.get(value.id) in self._variables:
            made.is_read = True  # as a part of what the other variable has
        memory[0] = made
        return made


def _join(calls: Sequence[_Call], results: Sequence[_Value | None], graph: Any) -> None:
    """Find the nodes of values and calls, as long as one more becomes certain."""
    by_operator: dict[str, list[Any]] = {}
    for node in graph.nodes:
        if node.op == "call_function":
            by_operator.setdefault(_operator(node), []).append(node)
    (output,) = (node for node in graph.nodes if node.op == "output")
    for value, node in zip(results, output.args[0], strict=False):
        _bind(value, node)
    waiting = [call for call in calls if not call.is_fused]
    before = -1
    while waiting and len(waiting) != before:
        before = len(waiting)
        free = {call: _candidates(call, by_operator) for call in waiting}
        for call, found in free.items():
            # Two calls that can be the same node only: one of them is of an operator that torch wrote as another.
            if len(found) == 1 and list(free.values()).count(found) == 1:
                call.node = found[0]
                by_operator[_operator(call.node)].remove(call.node)
                _bind_call(call)
        waiting = [call for call in waiting if call.node is None]


def _candidates(call: _Call, by_operator: Mapping[str, Sequence[Any]]) -> list[Any]:
    operator = call.name.removeprefix("torch.ops.").removeprefix("aten.")
    operator = operator.removeprefix("extern_kernels.").removeprefix("bias_")
    nodes = by_operator.get(operator, by_operator.get(operator.rpartition(".")[0], ()))
    return [node for node in nodes if _fits(call, node)]


def _fits(call: _Call, node: Any) -> bool:
    """Return whether a call can be that of a node: by source nodes, inputs, outputs and sizes, as far as known."""
    for value in call.outputs:
        if value.node not in (None, node) or (value.sizes is not None and value.sizes != _sizes_of(node)):
            return False
        if any(part.node is not None and node not in part.node.all_input_nodes for part in value.parts.values()):
            return False
    if any(
        value is not None and value.node is not None and value.node not in _chain(one)
        for value, one in _inputs(call, node)
    ):
        return False
    if call.sources is None or source_name(node) not in call.sources:
        return False
    return call.sources <= {source_name(one) for one in _ancestors([node])}


def _inputs(call: _Call, node: Any) -> Iterator[tuple[_Value | None, Any]]:
    tensors = [
        one for argument in node.args for one in (argument if isinstance(argument, (list, tuple)) else [argument])
    ]
    return zip(call.inputs, (one for one in tensors if hasattr(one, "all_input_nodes")), strict=False)


def _bind_call(call: _Call) -> None:
    for value in call.outputs:
        value.node = call.node
        for user in call.node.users:
            if _operator(user) == "getitem" and str(user.args[1]) in value.parts:
                value.parts[str(user.args[1])].node = user
    for taken, node in _inputs(call, call.node):
        _bind(taken, node)
        if taken is not None and taken.reader is None:
            taken.reader = call.node


def _bind(value: _Value | None, node: Any) -> None:
    """Note the node of a value that another form of the program has at this place, where the sizes agree."""
    if value is not None and value.node is None and hasattr(node, "all_input_nodes"):
        base = _chain(node)[-1]
        if value.sizes is not None and value.sizes == _sizes_of(base):
            value.node = base


def _chain(node: Any) -> list[Any]:
    """Return a node, and the nodes whose memory it shows a part of."""
    found = [node]
    while _operator(found[-1]) in _VIEWS or (
        _operator(found[-1]) == "getitem" and _operator(found[-1].args[0]) in _VIEWS
    ):
        found.append(found[-1].args[0])
    return found


def _ancestors(nodes: Iterable[Any], end: Set[str] = frozenset(), *, last: bool = True) -> Iterator[Any]:
    """Yield nodes and all that they are computed from, up to the first operators of ``end``, those too if ``last``."""
    nodes = list(nodes)
    waiting, seen = nodes[:], set(nodes)
    while waiting:
        node = waiting.pop()
        is_end = node not in nodes and _operator(node.args[0] if _operator(node) == "getitem" else node) in end
        if last or not is_end:
            yield node
        new = set() if is_end else set(node.all_input_nodes) - seen
        seen |= new
        waiting += new


def source_name(node: Any) -> str:
    """Return the name by which inductor's comments call a node."""
    sources = node.meta.get("from_node")
    return str(sources[0].name) if sources else node.name


def _sizes_of(node: Any) -> tuple[str, ...] | None:
    """Return the sizes of a node's tensor, as generated code writes them."""
    value = node.meta.get("val")
    return tuple(map(str, value.shape)) if hasattr(value, "shape") else None


def _aten(node: Any) -> str:
    """Return the operator that a node was a part of before torch decomposed it, as names of kernels have it."""
    operator = node.meta.get("original_aten") if node.op == "call_function" else None
    return str(getattr(operator, "_overloadpacket", operator or "")).rpartition(".")[2]


def _operator(node: Any) -> str:
    """Return the name of a node's operator, as ``mm`` or ``mylib.work``."""
    if node.op != "call_function":
        return ""
    packet = getattr(node.target, "_overloadpacket", None)
    if packet is None:
        return str(getattr(node.target, "__name__", ""))
    return str(packet).removeprefix("aten.")


def _is_kernel(call: ast.Call) -> bool:
    return dotted(call.func).startswith(KERNELS)


def _is_buffer(value: ast.expr) -> bool:
    """Return whether an argument is a tensor: a variable or a view of one."""
    return isinstance(value, ast.Name) or (isinstance(value, ast.Call) and dotted(value.func) == "reinterpret_tensor")


def _sizes_in(value: ast.expr) -> tuple[str, ...]:
    """Return the sizes that generated code has as a tuple."""
    return tuple(map(ast.unparse, getattr(value, "elts", ())))
