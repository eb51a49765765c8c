"""Levels of detail: all targets, then fewer and fewer, the most deeply nested dropped first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from .._names import clean_name
from ..frame import MODULE_PHASES, Phase
from .target import NO_RULE, Target


@dataclass(frozen=True, slots=True)
class DetailLevel:
    """One level: its targets, and the start of a sentence about them that ends with "recorded"."""

    targets: tuple[Target, ...]
    words: str


def detail_levels(model: nn.Module, targets: Sequence[Target]) -> tuple[DetailLevel, ...]:
    """Return the levels: all targets, then one level of nesting fewer each time, and last the model as a whole."""
    depths = _depths(targets)
    levels = [DetailLevel(tuple(targets), f"all {len(targets)} targets are")]
    for deepest in range(max(depths, default=0), 0, -1):
        kept = tuple(target for target, depth in zip(targets, depths, strict=True) if depth < deepest)
        levels.append(DetailLevel(kept, f"{len(kept)} of {len(targets)} targets, those in no other first, are"))
    if [target.fqn for target in levels[-1].targets] != [""]:
        root = Target(model, "", clean_name(type(model).__name__), frozenset[Phase](MODULE_PHASES), False, NO_RULE)
        levels.append(DetailLevel((root,), "only the model as a whole and the phases are"))
    return tuple(levels)


def _depths(targets: Sequence[Target]) -> list[int]:
    """Return for each target the number of targets that contain it."""
    paths = {tuple(target.fqn.split(".")) if target.fqn else () for target in targets}
    return [
        sum(own[:length] in paths for length in range(len(own)))
        for own in (tuple(target.fqn.split(".")) if target.fqn else () for target in targets)
    ]
