"""The torch optimizers in the ``optimizer`` argument of ``instrument``: several of them, or wrapped ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..errors import SessionError

MAX_WRAPPERS: Final = 8
"""Wrappers around an optimizer that are looked through."""
WRAPPED_AS: Final = ("optimizer", "_optimizer")
"""The attributes in which wrappers hold an optimizer."""
HOOKED_BY: Final = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
"""The attributes of a torch optimizer that hold its hooks; wrappers derived from its class lack them."""


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
    for _ in range(MAX_WRAPPERS):
        if all(hasattr(one, name) for name in HOOKED_BY):
            return one
        one = next((found for name in WRAPPED_AS if (found := getattr(one, name, None)) is not None), None)
    raise SessionError(
        f"autoprof.instrument: optimizer is a {type(given).__name__}; it must be a torch.optim.Optimizer, "
        "a wrapper that holds it as .optimizer, or a list of them"
    )
