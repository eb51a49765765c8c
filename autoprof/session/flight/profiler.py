"""Start and stop ``torch.profiler`` without harm to another profiler of the program.

torch lets a second profiler start while one is running or in its warm-up. The one that stops later then crashes the
process when it exports its trace (torch 2.13). So a capture does not start while another profiler runs, and stops when
another one starts.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import suppress
from inspect import signature
from threading import get_ident
from typing import Any, Final

import torch
from torch import profiler as torch_profiler

from ...base.process.replace import Attribute, InCompiler, Replacement
from ...errors import SessionError

MAX_EVENTS: Final = 1_000_000
"""The most events of a trace that viewers open, some 300 MB."""
_torch: Any = torch.autograd.profiler
_supported: Any = torch_profiler.supported_activities


def in_use() -> bool:
    """Whether any ``torch.profiler`` of this process is running or prepared."""
    if torch.autograd._profiler_enabled():  # type: ignore[attr-defined]
        return True
    kind = _torch.profile
    return any(
        issubclass(type(one), kind) and getattr(one, "entered", False) and getattr(one, "kineto_results", 0) is None
        for one in gc.get_objects()
    )


def supported(wanted: Sequence[str]) -> tuple[list[Any], list[str]]:
    """Return torch's activities of these names (all if empty), and the names that it cannot record."""
    available = {str(one.name).lower(): one for one in _supported()}
    if not torch.cuda.is_available():  # torch lists the activities of its build, also without a device
        available.pop("cuda", None)
    if not (hasattr(torch, "xpu") and torch.xpu.is_available()):
        available.pop("xpu", None)
    chosen = list(wanted) or list(available)
    return [available[name] for name in chosen if name in available], [name for name in chosen if name not in available]


_ONE_CYCLE: Final[dict[str, Any]] = (
    {"acc_events": True} if "acc_events" in signature(torch_profiler.profile).parameters else {}
)
"""Some versions of torch warn that the events of earlier cycles are lost, also where there is only one cycle."""


class Profiler:
    """One run of ``torch.profiler``. ``on_conflict`` is called before another one starts."""

    def __init__(self, on_conflict: Callable[[], None]) -> None:
        self._on_conflict = on_conflict
        self._profile: Any = None
        self._thread = 0
        self._lost = False
        self._starts = [
            Replacement(Attribute(_torch, name), in_compiler=InCompiler.PRESENT)
            for name in ("_prepare_profiler", "_enable_profiler")
            if hasattr(_torch, name)
        ]

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._profile is not None

    def start(self, activities: Sequence[Any], *, memory: bool, shapes: bool, stacks: bool) -> None:
        """Start recording. Raises ``SessionError`` if another profiler is active, and torch's own errors."""
        if in_use():
            raise SessionError(
                "another torch.profiler is running or in its warm-up, and two at once would break both; "
                "stop that one first"
            )
        profile = torch_profiler.profile(
            activities=activities, profile_memory=memory, record_shapes=shapes, with_stack=stacks, **_ONE_CYCLE
        )
        self._thread, self._lost = get_ident(), False
        try:
            profile.start()
        except BaseException:
            with suppress(Exception):
                profile.stop()
            raise
        self._profile = profile
        for start in self._starts:
            start.hold(self)
            start.listen(self)

    def stop(self) -> Any:
        """Stop, wait for the device, and return torch's profile. Raises ``SessionError`` if there is none."""
        profile, self._profile = self._profile, None
        if profile is None:
            raise SessionError("the profiler was not running")
        for start in self._starts:
            start.ignore(self)
            start.release(self)
        if self._lost or get_ident() != self._thread or not torch.autograd._profiler_enabled():  # type: ignore[attr-defined]
            raise SessionError("another torch.profiler replaced it")
        profile.stop()
        count = len(profile.profiler.kineto_results.events())
        if count > MAX_EVENTS:
            raise SessionError(f"{count:,} events are more than {MAX_EVENTS:,}; ask for fewer steps")
        return profile

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Called before another profiler starts."""
        if self._profile is not None:
            if get_ident() == self._thread:
                self._on_conflict()
            else:  # torch's profiler can only be stopped where it was started
                self._lost = True
        return False

    def leave(self) -> None:
        """Never called."""
