"""What is attached to a module: hooks of torch, and what autoprof calls around its calls."""

from __future__ import annotations

from typing import Any

from torch import nn

from autoprof._capture.probes.call_sites import table


def hooks_of(module: nn.Module) -> dict[str, list[Any]]:
    """Return every hook of one module, by where torch keeps it, and what autoprof calls around its calls."""
    hooks = {
        name: list(value.items())
        for name, value in vars(module).items()
        if name.endswith("_hooks") and isinstance(value, dict)  # modules of torch.fx have lists of other hooks
    }
    site = table.find(module) if isinstance(module, nn.Module) else None
    return {**hooks, "marks": [] if site is None else [*site.entries, *site.before]}


def is_marked(module: Any) -> bool:
    """Return whether the module has a hook, or its calls are marked."""
    return any(hooks_of(module).values())
