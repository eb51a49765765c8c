"""autoprof: where each training step of a PyTorch model goes, by module and phase, while the run goes on.

session = autoprof.instrument(model, "configs/vrt_spike.yaml", optimizer=optimizer)
for batch in session.loader(loader):
    …
    session.step()
session.close()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import AutoprofError, ConfigError, MissingExtra, OutputError, SessionError, TargetError
from .probes import log_timing, span, timed
from .session import Session
from .span import Phase, Span, StepFrame
from .summary import Finding, Row, Summary
from .wiring import instrument

if TYPE_CHECKING:
    from .config import Config
    from .deep import deep_capture
    from .runs import Run, read_run
    from .sinks import Sink

__version__ = "0.1.0"
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
    "timed",
]

_LAZY = {"Config": "config", "deep_capture": "deep", "Run": "runs", "Sink": "sinks", "read_run": "runs"}


def __getattr__(name: str) -> Any:
    """Load what is slow to import (pydantic, the run folder) when it is first asked for."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
