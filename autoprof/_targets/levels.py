"""Targets in levels of detail: what is left when the finest modules are dropped, and dropped again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from .._names import clean_name
from ..config import MODULE_PHASES
from ..frame import Phase
from .select import NO_RULE, Target


@dataclass(frozen=True, slots=True)
class Detail:
    """One level: its targets, and in words what is recorded."""

    targets: tuple[Target, ...]
    words: str


def levels_of_detail(model: nn.Module, targets: Sequence[Target]) -> tuple[Detail, ...]:
    """Return all targets, then ever fewer by how deep they lie in one another, and last the model as a whole."""
    depths = _depths(targets)
    levels = [Detail(tuple(targets), f"all {len(targets)} targets are")]
    for deepest in range(max(depths, default=0), 0, -1):
        kept = tuple(target for target, depth in zip(targets, depths, strict=True) if depth < deepest)
        levels.append(Detail(kept, f"{len(kept)} of {len(targets)} targets, those in no other first, are"))
    if [target.fqn for target in levels[-1].targets] != [""]:
        root = Target(model, "", clean_name(type(model).__name__), frozenset[Phase](MODULE_PHASES), False, NO_RULE)
        levels.append(Detail((root,), "only the model as a whole and the phases are"))
    return tuple(levels)


def _depths(targets: Sequence[Target]) -> list[int]:
    """Count for each target the others that it lies in."""
    paths = {tuple(target.fqn.split(".")) if target.fqn else () for target in targets}
    return [
        sum(own[:length] in paths for length in range(len(own)))
        for own in (tuple(target.fqn.split(".")) if target.fqn else () for target in targets)
    ]
