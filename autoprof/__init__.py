"""autoprof: where each training step of a PyTorch model goes, by module and phase, while the run goes on.

session = autoprof.instrument(model, "configs/vrt_spike.yaml", optimizer=optimizer)
for batch in session.loader(loader):
    …
    session.step()
session.close()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._core.other_project import warn_of_other_project
from ._core.version import VERSION
from .errors import AutoprofError, ConfigError, MissingExtra, OutputError, SessionError, TargetError

if TYPE_CHECKING:
    from ._capture.hooks.function import log_timing, span, timed
    from ._session.builder import instrument
    from ._session.deep_capture import deep_capture
    from ._session.session import Session
    from ._storage.runs import Run, read_run
    from ._targets import suggest_targets
    from .frame import Phase, Span, StepFrame
    from .sinks import Config, Sink
    from .summary import Finding, Row, Summary

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
    "Finding": "summary",
    "Phase": "frame",
    "Row": "summary",
    "Run": "_storage.runs",
    "Session": "_session.session",
    "Sink": "sinks",
    "Span": "frame",
    "StepFrame": "frame",
    "Summary": "summary",
    "deep_capture": "_session.deep_capture",
    "instrument": "_session.builder",
    "log_timing": "_capture.hooks.function",
    "read_run": "_storage.runs",
    "span": "_capture.hooks.function",
    "suggest_targets": "_targets",
    "timed": "_capture.hooks.function",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used: the command line and programs without a session start without torch."""
    if name in _LAZY:
        from importlib import import_module

        from ._process.gc_paused import GcPaused, age_all

        if _LAZY[name].startswith(("_session", "_capture", "_targets")):
            import_module("torch")
        with GcPaused():
            value = globals()[name] = getattr(import_module(f".{_LAZY[name]}", __name__), name)
            from . import _reports  # noqa: F401 (a notebook shows a summary through it)

            age_all()
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
