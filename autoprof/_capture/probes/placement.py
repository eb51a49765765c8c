"""On which device each instrumented module lies, so that its forward is read on the stream that its kernels go to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from ...devices import HOST_TYPES, Clock, device_of
from ..recorder import Recorder
from .hooks import Hooks
from .module import ModuleProbe


def find_anchor(model: nn.Module) -> Tensor | None:
    """Return the tensor that says where a model is: its first parameter on a device beside the host, or the first.

    A part that was left on the CPU, or on ``meta`` until it is called, does not make it a model of the CPU.
    """
    first = None
    for tensors in (model.parameters(), model.buffers()):
        for tensor in tensors:
            if tensor.device.type not in HOST_TYPES:
                return tensor
            first = tensor if first is None else first
    return first


class _Seen(NamedTuple):
    """Where a tensor is kept that a module's device was told from, and which device it was."""

    table: Any
    name: str
    device: int


class Placement:
    """Have each probe read the device of its module, and see when one has moved.

    A module is where its first parameter or buffer is. One that has none on a device of the clock's kind (an
    activation, a part that is offloaded to the host) is, in a model on several devices, where a call's first tensor
    is, or else where the nearest module around it is.
    """

    def __init__(
        self,
        model: nn.Module,
        recorder: Recorder,
        hooks: Hooks,
        probes: Sequence[ModuleProbe],
        *,
        follow_kind: bool = True,
    ) -> None:
        self._model = model
        self._recorder = recorder
        self._hooks = hooks
        self._probes = probes
        self._anchor = find_anchor(model) if follow_kind else None
        self._on_host = self._anchor is None or self._anchor.is_cpu
        self._seen: dict[tuple[int, str], _Seen] = {}
        self._settle()

    def moved(self) -> bool:
        """Tell whether a module has moved to another device. On a host clock one look, else one for each module."""
        if self._anchor is not None and self._anchor.is_cpu is not self._on_host:
            return True
        if not self._seen:
            return False
        index_of = self._recorder.clock.index_of
        try:
            return any([index_of(table[name]) != device for table, name, device in self._seen.values()])  # noqa: C419
        except KeyError:  # a parameter that is gone
            return True

    def follow(self) -> str | None:
        """Have the recorder and the probes read where the modules are now; return what is to be said of the clock."""
        note = None
        if self._anchor is not None and self._anchor.is_cpu is not self._on_host:
            self._on_host, device = self._anchor.is_cpu, self._anchor.device
            clock, note = device_of(device).clock(device)
            if clock.device_type != self._recorder.clock.device_type:
                self._recorder.use_clock(clock)
        self._settle()
        return note

    def _settle(self) -> None:
        recorder, hooks, clock = self._recorder, self._hooks, self._recorder.clock
        self._seen.clear()
        whole = _find(self._model, clock)
        home = None if whole is None else whole.device
        if clock.device_index != home:
            clock.use_device(home)
            recorder.use_clock(clock)
        if whole is None:
            devices: list[tuple[int | None, bool]] = [(None, True)] * len(self._probes)
        else:
            self._keep(whole)
            devices = self._devices(clock)
        several = len({home, *(index for index, own in devices if own)}) > 1
        if hooks.passes.several is not several:
            hooks.passes.several = several
            recorder.use_clock(clock)
        for probe, (index, own) in zip(self._probes, devices, strict=True):
            probe.place(hooks, index, home, several=several, by_input=several and not own)

    def _devices(self, clock: Clock) -> list[tuple[int | None, bool]]:
        """Return the device of each probe's module, and whether its own tensors tell it."""
        around = _parents(self._model)
        devices: list[tuple[int | None, bool]] = []
        for probe in self._probes:
            module: nn.Module | None = probe.module
            seen = _find(probe.module, clock)
            own = seen is not None
            while seen is None and module is not None:
                module = around.get(module)
                seen = None if module is None else _find(module, clock)
            if seen is not None:
                self._keep(seen)
            devices.append((None if seen is None else seen.device, own))
        return devices

    def _keep(self, seen: _Seen) -> None:
        self._seen[id(seen.table), seen.name] = seen


def _parents(model: nn.Module) -> dict[nn.Module, nn.Module]:
    """Return the first module that each one lies in."""
    around: dict[nn.Module, nn.Module] = {}
    for module in model.modules():
        for child in module.children():
            around.setdefault(child, module)
    return around


def _find(model: nn.Module, clock: Clock) -> _Seen | None:
    """Return the first parameter, or else the first buffer, on a device of the clock's kind."""
    if clock.device_type is None:
        return None
    for kind in ("_parameters", "_buffers"):
        for module in model.modules():
            table = getattr(module, kind)
            for name, tensor in table.items():
                index = None if tensor is None else clock.index_of(tensor)
                if index is not None:
                    return _Seen(table, name, index)
    return None
