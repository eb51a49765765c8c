"""Suggest the targets of a model before any run."""

from __future__ import annotations

from typing import Any, Final

from torch import nn

from .cut_rules import CutRules
from .groups import ModuleGroup, group_tree

ROWS_LIMIT: Final = 24
"""The most groups suggested: about as many rows as a screen shows."""
MODULES_LIMIT: Final = 100
"""The most modules suggested: with some 10 µs for each call, hooks on them cost about a millisecond a step."""


def suggest_targets(model: nn.Module) -> dict[str, Any]:
    """Return rules for the model's blocks and the modules inside them, as a configuration for ``instrument``.

    No step is run: the rules open the model from its top, one level of nesting after the other, as far as a screen
    of rows holds. Repeated blocks share one name, such as ``transformer/h.*/attn``. A session without targets starts
    from the top too, then opens the rows that take long. ``yaml.safe_dump`` writes the result as a file.
    """
    return CutRules(model).mapping(first_cut(group_tree(model)))


def first_cut(root: ModuleGroup) -> tuple[ModuleGroup, ...]:
    """Return as many levels of nesting of the tree as the limits allow, at least one; the model, if it is all."""
    shown = root.visible
    level = list(shown)
    while level := [child for group in level for child in group.visible]:
        if len(shown) + len(level) > ROWS_LIMIT or sum(group.blocks for group in [*shown, *level]) > MODULES_LIMIT:
            break
        shown += level
    chosen = set(map(id, shown))
    return tuple(group for group in root.below() if id(group) in chosen) or (root,)
