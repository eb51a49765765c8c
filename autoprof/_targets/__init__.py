"""The rules of a configuration × the modules of a model → targets: which module is timed, under which name."""

from .levels import levels_of_detail
from .select import Selection, Target, select_targets
from .visible import Reason, Visibility, foresee, judge
from .watch import CallWatch

__all__ = [
    "CallWatch",
    "Reason",
    "Selection",
    "Target",
    "Visibility",
    "foresee",
    "judge",
    "levels_of_detail",
    "select_targets",
]
