"""The hook on the model itself that sees with which shapes it is called: one look a call, none in any other module."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from time import perf_counter_ns
from types import MethodType
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from .._capture.marks import ENTER, GRAPH_BEGIN, GRAPH_END, INDEX_MASK, KIND_BITS, KIND_MASK, MarkBatch
from .._capture.marks.state import CallMatcher, ExpectedCall
from .._capture.probes import ModuleProbe, native_call_hook
from .._capture.recorder import Recorder
from .flops import ModuleCall, ambient, describe

SHAPES: Final = 64
"""Shapes told apart; a run whose batches all differ gets no figure instead of a table that grows."""
LOOKED_AT: Final = 64
"""Values of one container that are looked at in every call; a container with more is known by its length."""
DEPTH: Final = 4

_compiling = torch.compiler.is_dynamo_compiling
_task = torch._C._current_graph_task_id
_NOT_IN_BACKWARD: Final = -1
_any_autocast = torch._C._is_any_autocast_enabled


class Shape(NamedTuple):
    """A call of the model as it was first seen with its shapes."""

    call: ModuleCall
    batch: int | None
    """Dimension 0 of the first tensor that goes in, where a gradient is wanted and what comes out has it as well."""


class StepCalls(NamedTuple):
    """The calls of the model in one step: the numbers of their shapes, in order, and what is known of them."""

    shapes: tuple[int, ...]
    outside: bool
    """Whether modules of the model were called outside of any call of the model itself."""
    passes: int | None
    """How many backward passes there were; None where nobody looked."""


class RootProbe(ModuleProbe):
    """Note each call of the model by the shapes that it is given.

    What costs time is done once for each shape: the description, and a look at the output. ``spent_ns`` says what the
    looks came to since it was last asked. ``followed`` says whether backward passes are marked.
    """

    __slots__ = ("_after", "_followed", "_inside", "_known", "_look", "_matcher", "_new", "shapes")

    def __init__(self, model: nn.Module, recorder: Recorder, *, followed: bool = True) -> None:
        self.recorder = recorder
        self.module = model
        self._followed = followed
        self._attached = False
        self._known: dict[Hashable, int] = {}
        self._new: int | None = None
        self._inside: list[tuple[int, int]] = []
        self._after: RemovableHandle | None = None
        self._matcher = CallMatcher()
        self._look = MethodType(native_call_hook(recorder, RootProbe.enter, self._matcher), self)
        self.shapes: list[Shape] = []

    @property
    def spent_ns(self) -> int:
        """Time of the looks, in nanoseconds, since it was last set to 0."""
        return self._matcher.spent_ns

    @spent_ns.setter
    def spent_ns(self, ns: int) -> None:
        self._matcher.spent_ns = ns

    def attach(self) -> None:
        """Hook the model, after the hooks that may change what it is given."""
        if self._attached or getattr(self.module, "_compiled_call_impl", None) is not None:
            return
        self._attached = True
        self._matcher.enabled = self._after is None
        nn.Module.register_forward_pre_hook(self.module, self._look, with_kwargs=True)

    def detach(self) -> None:
        """Remove the hooks, and compare no calls."""
        self._matcher.enabled = False
        super().detach()

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        """Note a call of the model."""
        if _compiling():
            return
        if not isinstance(self, RootProbe):  # a copy's hook is bound to an orphan
            self.fail(module)
            return
        if not self._attached:  # taken off by the hook before, in this very call
            return
        began = perf_counter_ns()
        try:
            if _task() == _NOT_IN_BACKWARD and not self._as_usual(module, args, kwargs):
                key = _brief(args, DEPTH), _brief(kwargs, DEPTH) if kwargs else None, module.training, *_modes()
                number = self._known.get(key)
                if number is None:
                    number = self._learn(module, key, args, kwargs or {})
                elif self._after is None and len(args) == 1 and isinstance(args[0], Tensor) and not kwargs:
                    self._matcher.expected = ExpectedCall(number, args[0].shape, args[0].dtype, *key[2:])
                self._matcher.numbers.append(number)
                if self._after is not None:
                    self._inside.append((len(self.recorder.buffer) // 2, -1))
        except Exception:
            self.fail(module)
        self.spent_ns += perf_counter_ns() - began

    def _as_usual(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> bool:
        """Note a call with one tensor that is like the last such call, which is told without a description of it."""
        expected = self._matcher.expected
        if expected is None or kwargs or len(args) != 1 or self._after is not None:
            return False
        number, shape, dtype, training, *modes = expected
        tensor = args[0]
        if not (
            isinstance(tensor, Tensor)
            and tensor.shape == shape
            and tensor.dtype is dtype
            and module.training is training
            and [*_modes()] == modes
        ):
            return False
        self._matcher.numbers.append(number)
        return True

    def _learn(self, module: nn.Module, key: Hashable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        if len(self._known) >= SHAPES:
            return -1
        number = self._known[key] = len(self.shapes)
        around = ambient(module)
        trains = around.training and around.grad
        self.shapes.append(Shape(ModuleCall("", describe(args, kwargs), around, trains), None))
        self._new = number if trains else None
        if self._after is None:
            self._after = nn.Module.register_forward_hook(module, self.leave, with_kwargs=True, always_call=True)
            self._matcher.enabled = False
        return number

    def leave(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Look at what the first call with its shapes returns, and where it ends."""
        if _compiling():
            return
        if not isinstance(self, RootProbe):
            self.fail(module)
            return
        try:
            if self._inside and self._inside[-1][1] < 0:
                self._inside[-1] = self._inside[-1][0], len(self.recorder.buffer) // 2
            if self._new is not None:
                number, self._new = self._new, None
                given, returned = _first_size((args, kwargs), DEPTH), _first_size(output, DEPTH)
                if given is not None and given == returned:
                    self.shapes[number] = self.shapes[number]._replace(batch=given)
        except Exception:
            self.fail(module)

    def take(self, taken: MarkBatch) -> StepCalls:
        """Return the calls of the step whose marks these are, and forget them."""
        calls, inside = tuple(self._matcher.numbers), self._inside
        self._matcher.numbers.clear()
        if self._after is None:
            return StepCalls(calls, False, None)
        self._after.remove()  # what is to be learnt of these shapes is known
        self._after, self._new, self._inside = None, None, []
        self._matcher.enabled = self._attached
        codes = taken.codes
        outside = len(inside) == len(calls) and self._any_outside(codes, inside)
        return StepCalls(calls, outside, self._passes(codes))

    def _any_outside(self, codes: list[int], inside: list[tuple[int, int]]) -> bool:
        """Tell whether a module was entered before, after or between the calls of the model."""
        labels, begin = self.recorder.labels, 0
        for start, end in [*inside, (len(codes), len(codes))]:
            for code in codes[begin:start]:
                if code & KIND_MASK == ENTER and labels[code >> KIND_BITS & INDEX_MASK].fqn:
                    return True
            begin = end if end >= 0 else len(codes)
        return False

    def _passes(self, codes: list[int]) -> int | None:
        """Count the backward passes that are inside no other."""
        if not self._followed:
            return None
        passes = depth = 0
        for code in codes:
            kind = code & KIND_MASK
            if kind == GRAPH_BEGIN:
                passes += depth == 0
                depth += 1
            elif kind == GRAPH_END:
                depth -= 1
        return passes


def _brief(value: Any, depth: int) -> Hashable:
    """Return what of a value decides about work, without the cost of a description."""
    if isinstance(value, Tensor):
        return value.shape, value.dtype
    if value is None or isinstance(value, (bool, str)):
        return value
    if depth and isinstance(value, (tuple, list)):
        if len(value) > LOOKED_AT:
            return type(value), len(value)
        return tuple([_brief(item, depth - 1) for item in value])
    if depth and isinstance(value, Mapping):
        if len(value) > LOOKED_AT:
            return type(value), len(value)
        return tuple([(str(name), _brief(item, depth - 1)) for name, item in value.items()])
    if depth and hasattr(type(value), "__dataclass_fields__"):
        return tuple([_brief(getattr(value, name, None), depth - 1) for name in type(value).__dataclass_fields__])
    return id(type(value))


def _modes() -> tuple[bool, Hashable]:
    return torch.is_grad_enabled(), _any_autocast() and (
        torch.is_autocast_enabled("cuda"),
        torch.is_autocast_enabled("cpu"),
    )


def _first_size(value: Any, depth: int) -> int | None:
    """Return dimension 0 of the first tensor that has one, None where there is none."""
    if isinstance(value, Tensor):
        return int(value.shape[0]) if value.ndim else None
    inner: Any = ()
    if depth and isinstance(value, Mapping):
        inner = value.values()
    elif depth and isinstance(value, (tuple, list)):
        inner = value[:LOOKED_AT]
    elif depth and hasattr(type(value), "__dataclass_fields__"):
        inner = [getattr(value, name, None) for name in type(value).__dataclass_fields__]
    return next((size for one in inner if (size := _first_size(one, depth - 1)) is not None), None)
