"""Select the modules to time: the rules of a configuration × the modules of a model → targets."""

from .call_counter import CallCounter
from .coverage import Coverage, Reason, measure_coverage, predict_coverage
from .cut_rules import CutGroup, CutRules
from .groups import ModuleGroup, group_tree
from .select import Selection, select_targets
from .sources import find_sources
from .split import split_group
from .suggest import first_cut, suggest_targets, suggested_yaml
from .target import NO_RULE, Target
from .tree import ModuleNode, find_module, unwrap, walk

__all__ = [
    "NO_RULE",
    "CallCounter",
    "Coverage",
    "CutGroup",
    "CutRules",
    "ModuleGroup",
    "ModuleNode",
    "Reason",
    "Selection",
    "Target",
    "find_module",
    "find_sources",
    "first_cut",
    "group_tree",
    "measure_coverage",
    "predict_coverage",
    "select_targets",
    "split_group",
    "suggest_targets",
    "suggested_yaml",
    "unwrap",
    "walk",
]
