"""The torch optimizers in the ``optimizer`` argument of ``instrument``: several of them, or wrapped ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..errors import SessionError


def optimizers_in(given: Any) -> tuple[Any, ...]:
    """Return the torch optimizers in the argument: one, a list, a dict of them, or wrappers around them."""
    if given is None:
        return ()
    if isinstance(given, Mapping):
        given = list(given.values())
    several = given if isinstance(given, (list, tuple)) else (given,)
    found = [unwrap_optimizer(one) for one in several]
    return tuple({id(one): one for one in found}.values())


def unwrap_optimizer(given: Any) -> Any:
    """Return the torch optimizer inside the wrappers of Accelerate, Lightning, DeepSpeed and the like.

    Raises ``SessionError`` where there is none.
    """
    one = given
    for _ in range(8):
        # The attributes of a torch optimizer that hold its hooks; wrappers derived from its class lack them.
        if all(hasattr(one, name) for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")):
            return one
        # The attributes in which wrappers hold an optimizer; else any attribute of the program's own class that is one.
        named = (getattr(one, name, None) for name in ("optimizer", "_optimizer"))
        own = (value for value in getattr(one, "__dict__", {}).values() if isinstance(value, torch.optim.Optimizer))
        one = next((found for found in (*named, *own) if found is not None), None)
    raise SessionError(
        f"autoprof.instrument: optimizer is a {type(given).__name__}; it must be a torch.optim.Optimizer, "
        "a wrapper that holds it, or a list of them"
    )
