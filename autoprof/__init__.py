"""autoprof: where each training step of a PyTorch model goes, by module and phase, while the run goes on.

session = autoprof.instrument(model, "configs/vrt_spike.yaml", optimizer=optimizer)
for batch in session.loader(loader):
    …
    session.step()
session.close()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .base.other_project import warn_of_other_project
from .base.version import VERSION
from .errors import AutoprofError, ConfigError, MissingExtra, OutputError, SessionError, TargetError

if TYPE_CHECKING:
    from .base.frame import Phase, Span, StepFrame
    from .base.storage.runs import Run, read_run
    from .base.summary import Finding, Row, Summary
    from .capture.hooks.function import log_timing, span, timed
    from .session.builder import instrument
    from .session.deep_capture import deep_capture
    from .session.session import Session
    from .sinks import Config, Sink
    from .targets import suggest_targets

warn_of_other_project(__file__)

__version__ = VERSION
__all__ = [
    "AutoprofError",
    "Config",
    "ConfigError",
    "Finding",
    "MissingExtra",
    "OutputError",
    "Phase",
    "Row",
    "Run",
    "Session",
    "SessionError",
    "Sink",
    "Span",
    "StepFrame",
    "Summary",
    "TargetError",
    "deep_capture",
    "instrument",
    "log_timing",
    "read_run",
    "span",
    "suggest_targets",
    "timed",
]

_LAZY = {
    "Config": "sinks",
    "Finding": "base.summary",
    "Phase": "base.frame",
    "Row": "base.summary",
    "Run": "base.storage.runs",
    "Session": "session.session",
    "Sink": "sinks",
    "Span": "base.frame",
    "StepFrame": "base.frame",
    "Summary": "base.summary",
    "deep_capture": "session.deep_capture",
    "instrument": "session.builder",
    "log_timing": "capture.hooks.function",
    "read_run": "base.storage.runs",
    "span": "capture.hooks.function",
    "suggest_targets": "targets",
    "timed": "capture.hooks.function",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used: the command line and programs without a session start without torch."""
    if name in _LAZY:
        from importlib import import_module

        from .base.process.gc_paused import GcPaused, age_all

        if _LAZY[name].startswith(("session", "capture", "targets")):
            import_module("torch")
        with GcPaused():
            value = globals()[name] = getattr(import_module(f".{_LAZY[name]}", __name__), name)
            from . import reports  # noqa: F401 (a notebook shows a summary through it)

            age_all()
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
