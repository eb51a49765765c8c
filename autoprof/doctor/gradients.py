"""Which calls receive a gradient: the referee of autoprof's own account of backward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .digest import leaves


class GradedCalls:
    """Count the calls of modules whose output receives a gradient, with forward hooks of its own.

    A call counts when the autograd node that made one of its output's tensors runs in a backward pass. A module that
    hands on what it was given counts as well: its node is that of the tensor it was given.
    """

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self._reached: dict[str, list[list[bool]]] = {fqn: [] for fqn in modules}
        # Not as methods: a scripted module refuses them, but runs the hooks.
        self._handles = [
            nn.Module.register_forward_hook(module, self._hook(calls))
            for module, calls in zip(modules.values(), self._reached.values(), strict=True)
        ]

    def calls(self) -> dict[str, int]:
        """Return the counts by fqn; modules without any are left out."""
        counts = {fqn: sum(reached[0] for reached in calls) for fqn, calls in self._reached.items()}
        return {fqn: count for fqn, count in counts.items() if count}

    def remove(self) -> None:
        """Take the hooks off."""
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
