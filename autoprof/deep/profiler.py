"""``torch.profiler``, started and stopped so that nobody else's profiler is harmed, and its trace kept to a size.

torch lets a second profiler start while one is running or waits in its warm-up; whichever stops later then crashes the
process when it is asked for its trace (2.13). So ours does not start beside another one, and gives way as soon as
another one wants to.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import get_ident
from typing import Any, Final

import torch
from torch import profiler as torch_profiler

from .._storage.atomic import replacing
from .._units import format_bytes
from ..errors import SessionError

EVENT_BYTES: Final = 200
"""The least that an event takes in a trace."""
BEYOND: Final = 8
"""How many times its limit a trace may be as torch writes it; a larger one is not written at all."""
_torch: Any = torch.autograd.profiler
_supported: Any = torch_profiler.supported_activities
_STARTS: Final = ("_prepare_profiler", "_enable_profiler")


def in_use() -> bool:
    """Tell whether a profiler of torch runs, or has been prepared, anywhere in this process."""
    if torch.autograd._profiler_enabled():  # type: ignore[attr-defined]
        return True
    kind = _torch.profile
    return any(
        issubclass(type(one), kind) and getattr(one, "entered", False) and getattr(one, "kineto_results", 0) is None
        for one in gc.get_objects()
    )


def supported(wanted: Sequence[str]) -> tuple[list[Any], list[str]]:
    """Return torch's activities of these names, or of all devices, and the names of those that it cannot record."""
    here = {str(one.name).lower(): one for one in _supported()}
    if not torch.cuda.is_available():
        here.pop("cuda", None)
    if not (hasattr(torch, "xpu") and torch.xpu.is_available()):
        here.pop("xpu", None)
    chosen = list(wanted) or list(here)
    return [here[name] for name in chosen if name in here], [name for name in chosen if name not in here]


class Profiler:
    """One run of ``torch.profiler``. ``give_way`` is called when somebody else wants to start one."""

    def __init__(self, give_way: Callable[[], None]) -> None:
        self._give_way = give_way
        self._profile: Any = None
        self._thread = 0
        self._lost = False
        self._guards: list[tuple[str, Any, Any]] = []

    @property
    def running(self) -> bool:
        """Whether it has been started and not stopped."""
        return self._profile is not None

    def start(self, activities: Sequence[Any], *, memory: bool, shapes: bool, stacks: bool) -> None:
        """Start to record. Raises ``SessionError`` where another profiler is there, or torch's own errors."""
        if in_use():
            raise SessionError(
                "another torch.profiler is running or in its warm-up, and two at once would break both; "
                "stop that one first"
            )
        made = torch_profiler.profile(
            activities=activities, profile_memory=memory, record_shapes=shapes, with_stack=stacks
        )
        self._thread, self._lost = get_ident(), False
        try:
            made.start()
        except BaseException:
            with suppress(Exception):
                made.stop()
            raise
        self._profile = made
        self._guard()

    def stop(self, path: Path | None, limit: int) -> str | None:
        """Stop, wait for the device, and write the trace; return why there is none where there is none."""
        made, self._profile = self._profile, None
        if made is None:
            return "the profiler was not running"
        self._unguard()
        if self._lost or get_ident() != self._thread or not torch.autograd._profiler_enabled():  # type: ignore[attr-defined]
            return "another profiler has taken torch's over"
        made.stop()
        if path is None:
            return "it was not asked for"
        count = len(made.profiler.kineto_results.events())
        if count * EVENT_BYTES > BEYOND * limit:
            return f"{count:,} events would be more than {BEYOND} times {format_bytes(limit)}; ask for fewer steps"
        with replacing(path) as draft:
            made.export_chrome_trace(str(draft))
        return None

    def _guard(self) -> None:
        """Be told before another profiler starts."""
        for name in _STARTS:
            original = getattr(_torch, name, None)
            if original is not None:
                guard = self._make_guard(original)
                self._guards.append((name, original, guard))
                setattr(_torch, name, guard)

    def _make_guard(self, original: Any) -> Any:
        def first_give_way(*args: Any, **kwargs: Any) -> Any:
            if self._profile is not None:
                if get_ident() == self._thread:
                    self._give_way()
                else:  # torch's profiler can only be stopped where it was started
                    self._lost = True
            return original(*args, **kwargs)

        return first_give_way

    def _unguard(self) -> None:
        while self._guards:
            name, original, guard = self._guards.pop()
            if getattr(_torch, name, None) is guard:
                setattr(_torch, name, original)
