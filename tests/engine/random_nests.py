"""Random nests of modules, for hypothesis: every shape of a model that the account has to close on."""

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from random_modules import (
    WIDTH,
    Apply,
    Aside,
    Branch,
    Chain,
    Checkpointed,
    Couple,
    Coupled,
    Entry,
    Fork,
    InnerGrad,
    Join,
    Leafs,
    NoGrad,
    Recur,
    Switch,
    Weigh,
)
from torch import nn

LEAVES: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "scale": lambda: Weigh(lambda x, weight: x * weight, 1),
    "frozen": lambda: nn.Linear(WIDTH, WIDTH).requires_grad_(False),
    "relu": nn.ReLU,
    "inplace": lambda: Apply(lambda x: x.mul_(0.5)),
    "pass": lambda: Apply(lambda x: x),
    "view": lambda: Apply(lambda x: x.transpose(0, 1).transpose(0, 1)),
    "detach": lambda: Apply(lambda x: x.detach()),
    "ignore": lambda: Weigh(lambda _, weight: weight * 2, 2, WIDTH),
    "constant": lambda: Apply(lambda _: torch.ones(2, WIDTH)),
    "leaf": lambda: Weigh(lambda _, weight: weight, 2, WIDTH),
    "freshleaf": lambda: Apply(lambda _: torch.full((2, WIDTH), 0.3).requires_grad_()),
}

CONTAINERS = ["tuple", "list", "dict", "box", "nested"]
leaf = st.sampled_from(sorted(LEAVES)).map(lambda kind: ("leaf", kind))


def _grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=3)
    chain = st.tuples(st.just("chain"), some, st.booleans(), st.integers(1, 2))
    checkpointed = st.tuples(st.just("checkpoint"), inner, st.booleans())
    two = st.lists(inner, min_size=2, max_size=3)
    ways = st.sampled_from(["whole", "star", "keyword"])
    return st.one_of(
        chain,
        chain,
        checkpointed,
        checkpointed,
        st.tuples(st.just("branch"), two, st.sampled_from(CONTAINERS), st.integers(1, 3), ways),
        st.tuples(st.just("again"), st.integers(0, 50)),
        st.tuples(st.just("switch"), two),
        st.tuples(st.just("recur"), inner, st.integers(1, 3), st.booleans()),
        st.tuples(st.just("coupled"), inner, st.booleans(), st.sampled_from(["plain", "reentrant", "other"])),
        st.tuples(st.just("nograd"), inner),
        st.tuples(st.just("freeze"), inner),
        st.tuples(st.just("aside"), inner),
        st.tuples(st.just("innergrad"), inner),
        st.tuples(st.just("leafs"), inner),
    )


inner_nests = st.recursive(leaf, _grow, max_leaves=8)
nests = st.one_of(
    inner_nests, st.tuples(st.just("entry"), inner_nests, st.sampled_from(["tuple", "dict", "box", "same", "plain"]))
)
"""Descriptions of modules; ``again`` stands for a module made before, shared."""

_MAKE: dict[str, Callable[..., nn.Module]] = {
    "chain": Chain,
    "branch": lambda parts, container, used, way: Branch(Fork(parts, container), Join(used), way),
    "checkpoint": Checkpointed,
    "switch": Switch,
    "recur": Recur,
    "coupled": lambda part, anew, form: Coupled(Couple(part, anew), form),
    "nograd": NoGrad,
    "freeze": lambda part: Chain([part.requires_grad_(False)], False, 1),
    "aside": Aside,
    "innergrad": InnerGrad,
    "leafs": Leafs,
    "entry": Entry,
}


def build(description: Any, made: list[nn.Module] | None = None) -> nn.Module:
    """Make the module of a description."""
    made = [] if made is None else made
    kind, *rest = description
    if kind == "again" and made:
        return made[rest[0] % len(made)]
    if kind == "again":
        module: nn.Module = nn.Linear(WIDTH, WIDTH)
    elif kind == "leaf":
        module = LEAVES[rest[0]]()
    else:
        parts = rest[0]
        built: Any = [build(part, made) for part in parts] if isinstance(parts, list) else build(parts, made)
        module = _MAKE[kind](built, *rest[1:])
    made.append(module)
    return module
