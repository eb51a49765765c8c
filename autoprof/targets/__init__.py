"""Select the modules to time: the rules of a configuration × the modules of a model → targets."""

from .coverage import find_unseen
from .cut_rules import CutGroup, CutRules
from .groups import ModuleGroup, group_tree
from .select import Selection, select_targets
from .sources import find_sources
from .suggest import first_cut, suggest_targets
from .target import NO_RULE, Target
from .tree import ModuleNode, find_module, unwrap, walk

__all__ = [
    "NO_RULE",
    "CutGroup",
    "CutRules",
    "ModuleGroup",
    "ModuleNode",
    "Selection",
    "Target",
    "find_module",
    "find_sources",
    "find_unseen",
    "first_cut",
    "group_tree",
    "select_targets",
    "suggest_targets",
    "unwrap",
    "walk",
]
