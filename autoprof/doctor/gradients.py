"""Count the module calls that receive a gradient, independently of autoprof's own backward spans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .digest import leaves


class GradientCalls:
    """Count the module calls whose output receives a gradient, with separate forward hooks.

    A call counts when the autograd node of one of its output tensors runs in a backward pass. A module that returns its
    input counts too: its node is the input's.
    """

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self._reached: dict[str, list[list[bool]]] = {fqn: [] for fqn in modules}
        # Called on the class: a scripted module refuses the method but runs the hooks.
        self._handles = [
            nn.Module.register_forward_hook(module, self._hook(calls))
            for module, calls in zip(modules.values(), self._reached.values(), strict=True)
        ]

    def calls(self) -> dict[str, int]:
        """Return the counts by fqn, without modules that have none."""
        counts = {fqn: sum(reached[0] for reached in calls) for fqn, calls in self._reached.items()}
        return {fqn: count for fqn, count in counts.items() if count}

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    def _hook(self, calls: list[list[bool]]) -> Any:
        def note(_module: nn.Module, _args: Any, output: Any) -> None:
            if torch.compiler.is_compiling():
                return
            reached = [False]
            calls.append(reached)

            def mark(_grads: Any) -> None:
                reached[0] = True

            for _, leaf in leaves(output):
                if isinstance(leaf, Tensor) and leaf.grad_fn is not None:
                    leaf.grad_fn.register_prehook(mark)

        return note
