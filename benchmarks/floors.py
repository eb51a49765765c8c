"""The floor: hand-written hooks that only read the clock and append the reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from .variant import Family, Variant
from .workloads import Workload

Read = Callable[[], Any]


class ForwardFloor(Variant):
    """Two readings a module, two appends."""

    family: ClassVar[Family] = "floor"
    name = "floor_forward"
    label = "floor: hand-written forward hooks"

    def __init__(self, read: Read = perf_counter_ns) -> None:
        self.read = read
        self._marks: list[Any] = []
        self._handles: list[Any] = []

    def open(self, workload: Workload) -> None:
        """Hook the workload's modules."""
        enter, leave = self._hooks(self._marks.append, self.read)
        for module in workload.modules:
            self._handles.append(module.register_forward_pre_hook(enter))
            self._handles.append(module.register_forward_hook(leave))

    def _hooks(self, append: Callable[[Any], None], read: Read) -> tuple[Any, Any]:
        def enter(_module: nn.Module, _args: Any) -> None:
            append(read())

        def leave(_module: nn.Module, _args: Any, _output: Any) -> None:
            append(read())

        return enter, leave

    def end_step(self) -> None:
        """Throw the marks away."""
        self._marks.clear()

    def close(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._marks.clear()


class BackwardFloor(ForwardFloor):
    """The same, and a prehook on the autograd nodes of the module's inputs and outputs."""

    name = "floor_both"
    label = "floor: forward hooks + node prehooks"

    def _hooks(self, append: Callable[[Any], None], read: Read) -> tuple[Any, Any]:
        def mark(_grads: Any) -> None:
            append(read())

        def watch(value: Any) -> None:
            node = value.grad_fn
            if node is not None:
                node.register_prehook(mark)

        def enter(_module: nn.Module, args: Any) -> None:
            append(read())
            for value in args:
                if isinstance(value, Tensor):
                    watch(value)

        def leave(_module: nn.Module, _args: Any, output: Any) -> None:
            append(read())
            if isinstance(output, Tensor):
                watch(output)
            else:
                for value in _tensors(output):
                    watch(value)

        return enter, leave


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
