"""Run a module of the fake copy once for each shape of its arguments; later calls return empty tensors of its outputs.

A loop over time calls one cell hundreds of times, and a transformer has many layers alike: the operations of one call
are those of all. A call is repeated only where nothing can make it differ: its module is in the same state, or is
another of the same structure; its arguments have the same shapes, and plain values are equal; no checkpoint encloses
it, which would compare the tensors that it saves.

A recurrent layer of torch is such a loop inside of one operator, and its operations are linear in the length of the
sequence. It runs over two steps and over three, whatever the length.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_map_only, tree_unflatten

from .call_inputs import autocast_types
from .count_table import CountTable, Repeats

if TYPE_CHECKING:
    from .operator_counter import OperatorCounter

MAX_LEAVES: Final = 64
"""A call with more values than this is not compared with others."""
_PLAIN: Final = (
    str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device, torch.Size,
    type, FunctionType, BuiltinFunctionType,
)  # fmt: skip
"""Types whose values are equal only where they have the same effect on operations."""
_RECURRENT: Final = (nn.RNN.forward, nn.LSTM.forward, nn.GRU.forward)
_BY_TORCH: Final = frozenset(vars(nn.Module()))
"""Attributes that each module has; of these only ``training`` changes its operations."""
_has_saving_hooks: Final = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _tracing: None)


class _Output(NamedTuple):
    """The output of a counted call, without its values."""

    table: CountTable
    fqn: str
    leaves: tuple[Any, ...]
    structure: TreeSpec


class _TensorShape(NamedTuple):
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool

    def empty(self) -> Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)


class _Stretch(torch.autograd.Function):
    """Stands in the graph between tensors of some shapes and tensors of others."""

    @staticmethod
    def forward(ctx: Any, calls: _RepeatedCalls, made: tuple[_TensorShape, ...], *given: Tensor) -> Any:
        ctx.calls, ctx.shapes = calls, [_shape_of(one) for one in given]
        return tuple(one.empty() for one in made)

    @staticmethod
    def backward(ctx: Any, *_gradients: Any) -> Any:
        wanted = zip(ctx.shapes, ctx.needs_input_grad[2:], strict=True)
        return None, None, *(ctx.calls.gradient(one) if need else None for one, need in wanted)


class _Repeat(torch.autograd.Function):
    """Stands in the graph for a call that is not run. Its backward gives gradients to inputs, none to parameters."""

    @staticmethod
    def forward(ctx: Any, calls: _RepeatedCalls, repeats: Repeats, made: tuple[_TensorShape, ...], *given: Any) -> Any:
        ctx.calls, ctx.repeats = calls, repeats
        ctx.shapes = [None if isinstance(one, nn.Parameter) else _shape_of(one) for one in given]
        outputs = [one.empty() for one in made]
        ctx.mark_non_differentiable(*(out for out, one in zip(outputs, made, strict=True) if not one.requires_grad))
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *_gradients: Any) -> Any:
        ctx.repeats.backward += 1
        needed = ctx.needs_input_grad[3:]
        wanted = zip(ctx.shapes, needed, strict=True)
        found = [None if one is None or not need else ctx.calls.gradient(one) for one, need in wanted]
        return None, None, None, *found


@contextmanager
def repeated_calls(counter: OperatorCounter, modules: Mapping[str, nn.Module]) -> Iterator[None]:
    """Replace the ``forward`` of modules of the copy by one that runs only calls unlike all before."""
    calls = _RepeatedCalls(counter)
    wrapped = []
    try:
        fqns = {id(module): fqn for fqn, module in modules.items()}
        for fqn, module in modules.items():
            if fqn and next(module.parameters(), None) is not None:
                calls.replace_forward(fqn, module, fqns)
                wrapped.append(module)
        yield
    finally:
        for module in wrapped:
            vars(module).pop("forward", None)  # it holds the module: a cycle would keep tensors of the count alive


class _RepeatedCalls:
    """The calls that were counted."""

    def __init__(self, counter: OperatorCounter) -> None:
        self._counter = counter
        self._structures: dict[Hashable, int] = {}
        self._numbers: dict[int, int] = {}
        self._outputs: dict[Hashable, _Output | None] = {}
        """The outputs of counted calls; None of a call that changed something."""
        self._gradients: dict[_TensorShape, Tensor] = {}

    def gradient(self, shape: _TensorShape) -> Tensor:
        """Return an empty gradient for an input of this shape, always the same tensor: nothing writes to it."""
        self._counter.differentiated_inside |= not self._counter.in_backward
        if shape not in self._gradients:
            with self._counter.unseen():
                self._gradients[shape] = shape.empty()
        return self._gradients[shape]

    def replace_forward(self, fqn: str, module: nn.Module, fqns: Mapping[int, str]) -> None:
        """Replace the ``forward`` of a module; ``fqns`` are those of all modules by identity."""
        inside = [fqns.get(id(one), "") for one in module.modules()]
        is_closed = all(one == fqn or one.startswith(f"{fqn}.") for one in inside)
        structure = self._structure(module) if is_closed else id(module)
        run = module.forward
        if isinstance(module, nn.RNNBase) and getattr(run, "__func__", None) in _RECURRENT:
            run = self._over_time(fqn, module, run)
        vars(module)["forward"] = self._wrap(fqn, module, structure, run)

    def _over_time(self, fqn: str, module: nn.RNNBase, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return a ``forward`` that counts ``n`` steps as ``n - 2`` times three without ``n - 3`` times two."""

        def forward(input: Any, hx: Any = None) -> Any:  # as torch names them
            is_sequence = isinstance(input, Tensor) and input.dim() > 1  # else it is packed, or wrong
            time = int(is_sequence and module.batch_first and input.dim() == 3)
            if not is_sequence or input.shape[time] <= 3 or self._counter.in_backward:
                return run(input, hx)
            steps, outer, weights = input.shape[time], self._counter.table, module._flat_weights
            (three,) = self._stretch([_shape_of(input, time, 3)], [input])
            with self._counter.unseen():
                # Of its own tensors: sums of the gradients of both runs are none of the model's.
                two, own, start = tree_map_only(Tensor, _leaf, (three.narrow(time, 0, 2), weights, hx))
            found: list[Tensor] = []
            for times, parameters, *given in ((3 - steps, own, two, start), (steps - 2, weights, three, hx)):
                table, module._flat_weights = CountTable(), parameters
                try:
                    with self._counter.counting_in(table):
                        leaves, structure = tree_flatten(run(*given))
                finally:
                    module._flat_weights = weights
                repeats = outer.repeat(table, fqn, fqn)
                repeats.forward = repeats.backward = times
                found += leaves
            half = len(found) // 2
            made = [_shape_of(found[half], time, steps), *map(_shape_of, found[half + 1 :])]
            return tree_unflatten(self._stretch(made, found), structure)

        return forward

    def _stretch(self, made: Iterable[_TensorShape], given: Iterable[Tensor]) -> list[Tensor]:
        with self._counter.unseen(), self._counter.counting_in(CountTable()):
            return list(_Stretch.apply(self, tuple(made), *given))  # type: ignore[no-untyped-call]

    def _structure(self, module: nn.Module) -> int:
        """Return the number of a module's structure: modules of one number have the same operations."""
        if id(module) not in self._numbers:
            self._numbers[id(module)] = self._find_structure(module)
        return self._numbers[id(module)]

    def _find_structure(self, module: nn.Module) -> int:
        own = {name: value for name, value in vars(module).items() if name not in _BY_TORCH or name == "training"}
        known = all(map(_is_plain, own.values())) and isinstance(module.forward, MethodType)
        tensors = (*module._parameters.items(), *module._buffers.items())
        key = (
            type(module),
            tuple((name, type(value), value) for name, value in own.items()) if known else id(module),
            tuple((name, None if one is None else _shape_of(one)) for name, one in tensors),
            tuple((name, None if one is None else self._structure(one)) for name, one in module._modules.items()),
        )
        return self._structures.setdefault(key, len(self._structures))

    def _wrap(self, fqn: str, module: nn.Module, structure: int, run: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            if self._counter.in_backward or _has_saving_hooks(True) is not None:
                return run(*args, **kwargs)
            leaves, layout = tree_flatten((args, kwargs))
            given = tuple(map(_brief, leaves[:MAX_LEAVES]))
            if len(leaves) > MAX_LEAVES or None in given:
                return run(*args, **kwargs)
            casts = tuple(autocast_types()) if torch._C._is_any_autocast_enabled() else ()
            key = structure, module.training, given, str(layout), torch.is_grad_enabled(), casts
            known = self._outputs.get(key, self)
            if known is None:
                return run(*args, **kwargs)
            if isinstance(known, _Output):
                output = self._repeat(known, fqn, module, leaves)
            else:
                output = self._count(key, fqn, module, leaves, lambda: run(*args, **kwargs))
            self._counter.begin_python()
            return output

        return forward

    def _count(self, key: Hashable, fqn: str, module: nn.Module, leaves: Iterable[Any], run: Callable[[], Any]) -> Any:
        """Run a call and count it in a table of its own."""
        versions = [one._version for one in leaves if isinstance(one, Tensor)]
        state, table = _state(module), CountTable()
        outer = self._counter.table
        with self._counter.counting_in(table):
            self._counter.begin_python()
            output = run()
            self._counter.end_python()
        repeats = outer.repeat(table, fqn, fqn)
        repeats.forward += 1
        repeats.backward += 1
        found, structure = tree_flatten(output)
        kept = tuple(_shape_of(one) if isinstance(one, Tensor) else one for one in found)
        changed = versions != [one._version for one in leaves if isinstance(one, Tensor)] or state != _state(module)
        is_known = all(_is_plain(one) or isinstance(one, Tensor) for one in found)
        self._outputs[key] = _Output(table, fqn, kept, structure) if is_known and not changed else None
        return output

    def _repeat(self, known: _Output, fqn: str, module: nn.Module, leaves: Iterable[Any]) -> Any:
        """Return empty tensors in the place of a call's outputs."""
        repeats = self._counter.table.repeat(known.table, known.fqn, fqn)
        repeats.forward += 1
        if fqn == known.fqn and not repeats.sums:
            repeats.sums = _sums(fqn, module)
        self._counter.repeats.append(repeats)
        made = tuple(one for one in known.leaves if isinstance(one, _TensorShape))
        inputs = [one for one in leaves if isinstance(one, Tensor)]
        # Sums of its gradients are among the operators of the call that it repeats: its own node counts for nothing.
        with self._counter.unseen(), self._counter.counting_in(CountTable()):
            tensors = iter(_Repeat.apply(self, repeats, made, *inputs, *module.parameters()))  # type: ignore[no-untyped-call]
        output = [next(tensors) if isinstance(one, _TensorShape) else one for one in known.leaves]
        return tree_unflatten(output, known.structure)


def _sums(fqn: str, module: nn.Module) -> dict[str, tuple[int, int]]:
    """Return for each module inside how many gradients a further call adds up, and the bytes that this moves."""
    found = {}
    for name, one in module.named_modules():
        sizes = [each.numel() * each.itemsize for each in one._parameters.values() if each is not None]
        found[f"{fqn}.{name}".rstrip(".")] = len(sizes), 3 * sum(sizes)
    return found


def _shape_of(tensor: Tensor, time: int = 0, steps: int | None = None) -> _TensorShape:
    """Return the shape of a tensor, or of one with another number of ``steps`` in the dimension ``time``."""
    shape, stride = list(tensor.shape), list(tensor.stride())
    if steps is not None:
        inner = shape[time] * stride[time]
        stride = [one // shape[time] * steps if one >= inner and one else one for one in stride]
        shape[time] = steps
    return _TensorShape(tuple(shape), tuple(stride), tensor.dtype, tensor.device, tensor.requires_grad)


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_(tensor.requires_grad)


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)


def _brief(value: Any) -> Hashable:
    """Return the properties of a value on which operations depend; None where they are unknown."""
    if isinstance(value, Tensor):
        return _shape_of(value)
    return (type(value), value) if _is_plain(value) else None


def _state(module: nn.Module) -> list[Any]:
    """Return the identities of all that the module and those inside it hold, and the lengths of containers."""
    return [
        (name, id(value), len(value) if isinstance(value, (list, dict, set)) else None, *_members(value))
        for one in module.modules()
        for name, value in vars(one).items()
        if name != "forward"
    ]


def _members(value: Any) -> Iterable[int]:
    return map(id, value.values()) if isinstance(value, dict) else ()
