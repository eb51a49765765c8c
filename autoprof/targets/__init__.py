"""The rules of a configuration × the modules of a model → targets: which module is timed, under which name."""

from .select import Selection, Target, select_targets

__all__ = ["Selection", "Target", "select_targets"]
