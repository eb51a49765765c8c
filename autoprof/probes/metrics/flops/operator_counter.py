"""Count operators as they run on fake tensors: their module, phase and FLOPs."""

from __future__ import annotations

import gc
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, Final, NamedTuple
from weakref import ref

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ....base.frame import Phase
from ..._call_table import file_owner
from .count_table import CountTable, Repeats
from .flop_count import TOO_LONG, FlopKey, Kind, Uncountable
from .formulas import FOURIER, Formula, is_heavy
from .one_hot import OneHotDetector
from .unfused_attention import AttentionDetector

_task = torch._C._current_graph_task_id
_NOT_IN_BACKWARD: Final = -1
MIN_PYTHON_NS: Final = 3_000_000
"""The shortest time between two operators that counts. In a transformer, whose own code is short, 0.06 to 0.08 ms were
measured in the median, and 0.9 ms at most, beside other processes."""


class _Owner(NamedTuple):
    """The innermost module that an operator belongs to, and the table of the call that it is counted in."""

    fqn: str
    table: CountTable


class OperatorCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Count the FLOPs of every operator, and run it on fake tensors to get its shapes.

    torch's own ``FlopCounterMode`` has the same formulas; it has no phases of a checkpointed model, no data types, and
    counts zero for operators without a formula. A backward operator belongs to the module whose forward made its
    autograd node. Nodes are numbered in order of creation, so the numbers at each module's begin and end suffice.
    Before an operator where it no longer ``goes_on`` it raises
    ``Uncountable``.
    """

    def __init__(self, mode: FakeTensorMode, goes_on: Callable[[], bool], processor_ns: Callable[[], int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.stopped = False
        """Whether the count was stopped; the model may catch the exception."""
        self.has_forward = False
        """Whether all of the forward was counted when the count was stopped."""
        self._goes_on = goes_on
        self._processor_ns = processor_ns
        self._since_ns = processor_ns()
        """The time at which the last operator, or own work, ended."""
        self._collections = _collections()
        self.whole = CountTable()
        """The operations of the call; those of repeated calls inside have tables of their own."""
        self._attention_detector = AttentionDetector()
        self.failure: tuple[BaseException, str] | None = None
        """The first exception that left a module in the forward, and that module."""
        self.formulas: Mapping[Any, Formula] = {}
        self._mode = mode
        self._created: list[ref[Tensor]] = []
        self.in_backward = False
        """Whether the backward pass of the model runs."""
        self.repeats: list[Repeats] = []
        """The repeated calls."""
        self.lines: dict[tuple[str, int], bool] = {}
        """The innermost lines of the program that call operators in the forward, and whether these make a graph."""
        self.one_hot: set[tuple[str, str, int]] = set()
        """The innermost module and the lines that multiply one-hot rows with a matrix."""
        self._one_hot_detector = OneHotDetector()
        self.differentiated_inside = False
        """Whether one of them was differentiated in the forward, where its gradients have no graph."""
        self._is_unseen = False
        self._stacks: dict[int, list[_Owner]] = {}
        self._numbers = [-1]
        self._owners = [_Owner("", self.whole)]

    def follow_modules(self, modules: Mapping[str, nn.Module]) -> None:
        """Hook the modules of the copy, to know where each begins and ends."""
        for fqn, module in modules.items():
            module.register_forward_pre_hook(partial(self._enter, fqn), prepend=True)
            module.register_forward_hook(partial(self._leave, fqn), always_call=True)

    @property
    def are_repeats_sound(self) -> bool:
        """Whether each repeated call that ran backward repeats one that did."""
        made = (one.table.has_backward for one in self.repeats if one.backward)
        return not self.differentiated_inside and all(made)

    @property
    def table(self) -> CountTable:
        """The table of the module call that runs in the forward."""
        return self._owner()[1].table

    @contextmanager
    def counting_in(self, table: CountTable) -> Iterator[None]:
        """Count the forward of the innermost module, and its backward, in this table."""
        stack = self._stacks[_NOT_IN_BACKWARD]
        outer = stack[-1]
        stack[-1] = outer._replace(table=table)
        self._mark(stack[-1], _next_number())
        try:
            yield
        finally:
            stack[-1] = outer
            self._mark(outer, _next_number())

    def end_python(self) -> None:
        """Count the time since the last operator as Python of the innermost module."""
        took_ns = self._processor_ns() - self._since_ns
        # Collecting garbage is no work of the module.
        if took_ns >= MIN_PYTHON_NS and not self.in_backward and _collections() == self._collections:
            owner = self._owner()[1]
            owner.table.python[owner.fqn, Phase.FORWARD] += took_ns

    def begin_python(self) -> None:
        """Let the time count from now on; the time before is no work of the model."""
        self._since_ns, self._collections = self._processor_ns(), _collections()

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """Count no operator inside: it is none of the model's."""
        before, self._is_unseen = self._is_unseen, True
        try:
            yield
        finally:
            self._is_unseen = before

    @contextmanager
    def backward(self) -> Iterator[None]:
        """The backward pass of the model. A gradient that a forward computes itself belongs to the forward."""
        self.in_backward = True
        try:
            yield
        finally:
            self.in_backward = False
            self._stacks.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default and len(args) == 1 and isinstance(args[0], FakeTensor):
            return args[0].fake_device  # called twice for every operator
        if self._is_unseen:
            return func(*args, **(kwargs or {}))
        self.end_python()
        try:
            return self._run(func, args, kwargs or {})
        finally:
            self.begin_python()

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator on fake tensors, and count it."""
        if not self._goes_on():  # a loop over time has thousands of operators in a few modules
            self.stopped, self.has_forward = True, self.in_backward
            raise Uncountable(TOO_LONG)
        packet, namespace = func._overloadpacket, func.namespace
        if namespace == "prim" or packet._qualified_op_name.startswith("aten::sym_"):
            return func(*args, **kwargs)
        # Namespaces whose operators wait for other ranks.
        if namespace in {"c10d", "symm_mem"}:
            raise Uncountable(f"{packet} waits for other ranks")
        name = packet.__name__
        # Operators that take a real tensor on purpose: a constant created in the forward.
        if name not in {"lift", "lift_fresh", "lift_fresh_copy"}:
            args, kwargs = self._all_fake(func, args), self._all_fake(func, kwargs)
        formula = self.formulas.get(packet)
        result = func(*args, **kwargs)
        made = [one for one in tree_leaves(result) if isinstance(one, Tensor)]
        self._created += map(ref, made)
        if not func.is_view and (not self.in_backward or _task() != _NOT_IN_BACKWARD):  # else it makes the gradients
            phase, owner = self._owner()
            # Without gradients an autograd function or a checkpoint may run, whose graph is made otherwise.
            is_noted = not self.in_backward and torch.is_grad_enabled()
            if is_noted and (line := _program_line(own=True)) is not None:
                self._note_line(line, makes_graph=_requires_gradient((args, kwargs)))
            if formula is None or name.startswith(FOURIER):  # products read each byte for many operations
                owner.table.moved[owner.fqn, phase] += _bytes_moved(name, args, made)
            owner.table.operators[owner.fqn, phase] += len(made) * _groups(func, args)
        flops = 0 if formula is None else formula(*args, **kwargs, out_val=result)
        if (
            not self.in_backward
            and (found := self._attention_detector.follow(name, args, result, int(flops))) is not None
        ):
            owner = self._owner()[1]
            owner.table.attention[owner.fqn, found[1]] += found[0]
        is_one_hot = not self.in_backward and self._one_hot_detector.follow(name, args, result)
        if is_one_hot and (line := _program_line(own=False)) is not None:
            self.one_hot.add((self._owner()[1].fqn, *line))
        if formula is not None:
            self._count(str(packet), name, args, flops)
        elif is_heavy(namespace, name):
            self._owner()[1].table.uncounted[str(packet)] += 1
        return result

    def _note_line(self, line: tuple[str, int], *, makes_graph: bool) -> None:
        self.lines[line] = self.lines.get(line, False) or makes_graph

    def find_leak(self) -> str | None:
        """Return the reason if a tensor of the finished count is still alive: code outside of the model holds it."""
        if any(one() is not None for one in self._created):
            gc.collect()  # tensors in a reference cycle, of an autograd context for example, are no leak
        leaked = next((tensor for one in self._created if (tensor := one()) is not None), None)
        self._created.clear()
        if leaked is None:
            return None
        return f"the forward keeps a tensor of shape {tuple(leaked.shape)} outside of the model"

    def _count(self, packet: str, name: str, args: Any, flops: int) -> None:
        dtype = next((arg.dtype for arg in args if isinstance(arg, Tensor)), None)
        if dtype is not None and name.startswith(FOURIER):
            dtype = dtype.to_real()
        if dtype is None or dtype.is_complex:  # a complex product is four real ones in some kernels, three in others
            self._owner()[1].table.uncounted[f"{packet} of complex numbers"] += 1
            return
        phase, owner = self._owner()
        kind = Kind(str(dtype).removeprefix("torch."), "conv" if "conv" in name else "matmul")
        owner.table.rows[FlopKey(owner.fqn, phase, kind)] += int(flops)

    def _owner(self) -> tuple[Phase, _Owner]:
        task = _task() if self.in_backward else _NOT_IN_BACKWARD
        stack = self._stacks.get(task)
        if task == _NOT_IN_BACKWARD:
            return Phase.FORWARD, stack[-1] if stack else self._owners[0]
        if not torch.is_grad_enabled():  # autograd runs nodes with gradients off; a recompute needs them on
            return Phase.BACKWARD, self._owner_of_node()
        if stack:
            return Phase.RECOMPUTE, stack[-1]
        owner = self._owner_of_node()
        if self._owners[-1] != owner:
            self._mark(owner, _next_number() - 1)
        return Phase.RECOMPUTE, owner

    def _owner_of_node(self) -> _Owner:
        node = torch._C._current_autograd_node()
        if node is None:
            return self._owners[0]
        return self._owners[bisect_right(self._numbers, node._sequence_nr()) - 1]

    def _mark(self, owner: _Owner, number: int) -> None:
        self._numbers.append(max(number, self._numbers[-1]))
        self._owners.append(owner)

    def _enter(self, fqn: str, module: nn.Module, args: Any) -> None:
        self.end_python()
        place = _Owner(fqn, self._owner()[1].table)
        self._stacks.setdefault(_task() if self.in_backward else _NOT_IN_BACKWARD, []).append(place)
        self._mark(place, _next_number())
        self.begin_python()

    def _leave(self, fqn: str, module: nn.Module, args: Any, output: Any) -> None:
        self.end_python()
        error = sys.exc_info()[1]
        if error is not None and (self.failure is None or self.failure[0] is not error):
            self.failure = (error, fqn)
        task = _task() if self.in_backward else _NOT_IN_BACKWARD
        stack = self._stacks[task]
        stack.pop()
        outside = self._owners[0] if task == _NOT_IN_BACKWARD else self._owner_of_node()
        self._mark(stack[-1] if stack else outside, _next_number())
        self.begin_python()

    def _all_fake(self, func: Any, value: Any) -> Any:
        """Return the arguments with fake tensors in the place of real ones, which are not part of the model."""
        if isinstance(value, Tensor):
            return value if isinstance(value, FakeTensor) else self._fake(func, value)
        if isinstance(value, (tuple, list)):
            return type(value)([self._all_fake(func, item) for item in value])
        if isinstance(value, dict):
            return {key: self._all_fake(func, item) for key, item in value.items()}
        return value

    def _fake(self, func: Any, real: Tensor) -> Tensor:
        shape = tuple(real.shape)
        if func._schema.is_mutable:
            raise Uncountable(f"{func._overloadpacket} would change a tensor of shape {shape} from outside the model")
        if real.requires_grad and torch.is_grad_enabled():
            raise Uncountable(f"a tensor of shape {shape} from outside the model would get a gradient")
        made: Tensor = self._mode.from_tensor(real, static_shapes=True)
        return made


_SELECTING: Final = {"embedding", "gather", "index", "index_select"}
"""Operators that read as much as they write, whatever the size of the table."""


_CALL_OF_MODULE: Final = nn.Module._call_impl.__code__


def _program_line(*, own: bool) -> tuple[str, int] | None:
    """Return the innermost line of the program that has led to this call.

    One that is the line's ``own``, or else None: not within a module of a library that the line calls.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and file_owner(frame.f_code.co_filename) != "user":
        frame = None if own and frame.f_code is _CALL_OF_MODULE else frame.f_back
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def _requires_gradient(values: Any) -> bool:
    return any(isinstance(one, Tensor) and one.requires_grad for one in tree_leaves(values))


def _collections() -> int:
    """Return how often all objects were searched for garbage, which takes longer than most code of a module."""
    return int(gc.get_stats()[-1]["collections"])


def _groups(func: Any, args: Any) -> int:
    """Return how many operators a grouped convolution is: torch computes the groups one by one in most kernels."""
    at = next((at for at, one in enumerate(func._schema.arguments) if one.name == "groups"), None)
    return 1 if at is None or at >= len(args) else int(args[at])


def _bytes_moved(name: str, args: Any, made: list[Tensor]) -> int:
    """Return the bytes of the tensors that an operator reads and writes."""
    return _bytes_of(made) + _bytes_of(made if name in _SELECTING else args)


def _bytes_of(values: Any) -> int:
    tensors = (one for one in tree_leaves(values) if isinstance(one, Tensor) and one.layout is torch.strided)
    return sum(one.numel() * one.itemsize for one in tensors)


def _next_number() -> int:
    number: int = torch._C._autograd._get_sequence_nr()
    return number
