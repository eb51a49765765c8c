"""Hooks on modules that open and close ranges for other tools."""

from __future__ import annotations

import types
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ...frame import Phase
from .hook_owner import HookOwner
from .module import ModuleProbe
from .ranges import Call, RangingRecorder

if TYPE_CHECKING:
    from ..._targets import Target

_compiling = torch.compiler.is_dynamo_compiling  # folded to True in a compiled graph, which then holds no range of ours


class RangeProbe(ModuleProbe):
    """The ranges of one module. In copies, pickles and compilers it is what every probe of a module is."""

    __slots__ = ("name", "phases")
    where = "range hooks"

    def __init__(self, recorder: RangingRecorder, target: Target) -> None:
        HookOwner.__init__(self, target.module, 0)
        self.recorder = recorder
        self._attached = False
        self._calls = {}
        self._memory = None
        self._tracks_backward = Phase.BACKWARD in target.phases
        self.name, self.phases = target.name, target.phases
        enter, leave = _make_hooks(self, recorder)
        self._enter, self._leave = types.MethodType(enter, self), types.MethodType(leave, self)


def _make_hooks(probe: RangeProbe, recorder: RangingRecorder) -> tuple[Any, Any]:
    ranges = recorder.ranges
    calls: dict[int, list[Call]] = {}

    def enter(self: Any, module: nn.Module, args: Any, kwargs: Any = None) -> None:
        if _compiling():
            return
        try:
            if self is not probe:
                self.fail(module)
                return
            open_ = calls.setdefault(get_ident(), [])
            open_.append(ranges.enter(probe.name, probe.phases, args, kwargs))
        except Exception:
            probe.fail(module)

    def leave(self: Any, module: nn.Module, args: Any, output: Any) -> None:
        if _compiling():
            return
        try:
            open_ = calls.get(get_ident())
            if self is probe and open_:
                ranges.leave(open_.pop(), output)
        except Exception:
            probe.fail(module)

    return enter, leave
