"""What the user's own hooks see: who is called in which order, with what, whose output received a gradient."""

import weakref
from collections import Counter
from typing import Any

import torch
from bits import tensors_in
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from autoprof.probes.losses import is_loss

# A scripted module refuses these as methods of its own, but runs the hooks when Python calls it.
_hook_before, _hook_after = nn.Module.register_forward_pre_hook, nn.Module.register_forward_hook

Call = tuple[str, int, int]
"""A call by its module's name, its number in the run, and the backward pass."""


class Witness:
    """Hook every module of a model the way a user would, and write down what the hooks see.

    Losses that are no part of the model, but made in its forward, are seen by hooks on all modules.

    ``events`` has every firing in order, with the identities between what a call took and what it returned.
    ``received`` has, by step, the calls of which an output with a node received a gradient; ``ran`` those of which the
    node of an output ran (which may happen for the sake of another output), with the calls around them that had
    returned by then; ``leaves`` the calls that returned no tensor with a node, but one that could receive a gradient.
    ``callers`` has the pairs of a call's name and the name of the call that it was made in.
    """

    def __init__(self, model: nn.Module, names: dict[nn.Module, str]) -> None:
        self.events: list[Any] = []
        self.received: list[set[Call]] = [set()]
        self.ran: list[set[Call]] = [set()]
        self.leaves: list[set[Call]] = [set()]
        self.callers: set[tuple[str, str | None]] = set()
        self.made: list[tuple[str, weakref.ref[Tensor]]] = []
        self.blind: list[str] = []
        self._names = names
        self._handles: list[Any] = []
        self._open: list[tuple[str, int]] = []
        self._serial = 0
        for module, name in names.items():
            self._handles.append(_hook_before(module, self._enter(name)))
            self._handles.append(_hook_after(module, self._leave, always_call=True))
        self._handles.append(register_module_forward_pre_hook(self._enter_loss))
        self._handles.append(register_module_forward_hook(self._leave_loss, always_call=True))

    def later(self) -> None:
        """Register a second pair of hooks, first in the row and last."""
        for module, name in self._names.items():
            self._handles.append(_hook_before(module, self._note("second before", name), prepend=True))
            self._handles.append(_hook_after(module, self._note("second after", name)))

    def remove(self) -> None:
        """Take the hooks off: a module may be shared by all models of its kind."""
        for handle in self._handles:
            handle.remove()

    def end_step(self) -> None:
        """Take what comes now for the next step's."""
        for kept in (self.received, self.ran, self.leaves):
            kept.append(set())
        alive = Counter(name for name, ref in self.made if ref() is not None)
        self.events.append(("alive at the end of the step", sorted(alive.items())))

    def _note(self, what: str, name: str) -> Any:
        def note(module: nn.Module, *_values: Any) -> None:
            self.events.append((what, name))

        return note

    def _enter(self, name: str) -> Any:
        def enter(module: nn.Module, args: Any) -> None:
            self._serial += 1
            self.events.append(("before", name, torch.is_grad_enabled(), len(args)))
            self.callers.add((name, self._open[-1][0] if self._open else None))
            self._open.append((name, self._serial))

        return enter

    def _enter_loss(self, module: nn.Module, args: Any) -> None:
        if is_loss(module) and module not in self._names:
            self._enter(f"Loss/{type(module).__name__}")(module, args)

    def _leave_loss(self, module: nn.Module, args: Any, output: Any) -> None:
        if is_loss(module) and module not in self._names:
            self._left(f"Loss/{type(module).__name__}", args, output)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self._left(self._names[module], args, output)

    def _left(self, name: str, args: Any, output: Any) -> None:
        path = tuple(self._open)
        self._open.pop()
        taken = [*args, *tensors_in(args)]
        same = [at for at, one in enumerate(taken) if one is output]
        given = list(tensors_in(output))
        shared = [(i, j) for i, tensor in enumerate(given) for j, one in enumerate(taken) if tensor is one]
        self.events.append(("after", name, type(output).__name__, same, shared))
        returns_inputs = all(any(tensor is one for one in taken) for tensor in given)
        self._watch(name, path, given, returns_inputs)

    def _watch(self, name: str, path: tuple[tuple[str, int], ...], given: list[Tensor], returns_inputs: bool) -> None:
        step = len(self.received) - 1
        nodes = 0
        for tensor in given:
            self.made.append((name, weakref.ref(tensor)))
            try:
                node = tensor.grad_fn
            except RuntimeError:  # a view that was changed in place may have none to show
                self.blind.append(name)
                continue
            if node is not None:
                nodes += 1
                if not returns_inputs:  # such a call has no backward
                    tensor.register_hook(self._receive(name, path))
                node.register_prehook(self._run(path))
        if not nodes:
            for tensor in given:
                if tensor.requires_grad and torch.is_grad_enabled():
                    self.leaves[step].add((*path[-1], -1))
                    break

    def _receive(self, name: str, path: tuple[tuple[str, int], ...]) -> Any:
        def receive(_grad: Tensor) -> None:
            self.events.append(("gradient", name))
            self.received[-1].add((*path[-1], torch._C._current_graph_task_id()))

        return receive

    def _run(self, path: tuple[tuple[str, int], ...]) -> Any:
        def run(_grads: Any) -> None:
            task = torch._C._current_graph_task_id()
            self.ran[-1].update((*call, task) for call in path if call not in self._open)

        return run
