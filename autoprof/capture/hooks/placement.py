"""Find the device of each instrumented module, so that its forward is timed on the stream of its kernels."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from ...base.weak import Weak, has_module
from ...devices import HOST_TYPES, device_of
from ..recorder import Recorder
from .module import ModuleProbe
from .module_hooks import Hooks


def find_anchor(model: nn.Module) -> Tensor | None:
    """Return the tensor whose device is the model's: its first parameter on an accelerator, or else its first.

    A part on the CPU, or on ``meta`` until it is called, does not make it a model of the CPU.
    """
    place = _anchor_place(model, lambda tensor: tensor.device.type not in HOST_TYPES)
    return None if place is None else place[0][place[1]]


def _anchor_place(model: nn.Module, is_preferred: Callable[[Tensor], bool]) -> tuple[Any, str] | None:
    """Return the table and the name of the first preferred parameter or buffer, or else of the first one."""
    first = None
    for kind in ("_parameters", "_buffers"):
        for module in model.modules():
            table = getattr(module, kind)
            for name, tensor in table.items():
                if tensor is not None and is_preferred(tensor):
                    return table, name
                if tensor is not None and first is None:
                    first = table, name
    return first


class Placement:
    """Have each probe read the clock of its module's device, and detect modules that have moved.

    A module is on the device of its anchor. If it has none on a device of the clock's kind (an activation, a part
    offloaded to the host), it is on the device of a call's first tensor in a model on several devices, and else on
    that of the nearest module around it.
    """

    _model = Weak()

    def __init__(self, model: nn.Module, recorder: Recorder, hooks: Hooks, *, follow_kind: bool = True) -> None:
        self._model = model
        self._recorder = recorder
        self._hooks = hooks
        self._follow_kind = follow_kind
        self._probes: list[ModuleProbe] = []
        self._anchors: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        weakref.finalize(model, self._anchors.clear).atexit = False
        """The tensors that show the devices of the modules: their table, the name in it and the device."""
        self._place_probes()

    def add(self, probes: Sequence[ModuleProbe]) -> None:
        """Place these probes too, and from now on follow their modules."""
        known = set(map(id, self._probes))
        self._probes += [probe for probe in probes if id(probe) not in known]
        self._place_probes()

    def moved(self) -> bool:
        """Return whether a module has moved to another device: one check on a host clock, else one a module."""
        clock = self._recorder.clock
        try:
            for table, name, device in self._anchors.values():  # a move to some backends replaces the parameters
                found = table[name].device if clock.device_type is None else clock.index_of(table[name])
                if found != device:
                    return True
        except KeyError:  # a parameter that was removed
            return True
        return False

    def has_left(self) -> bool:
        """Return whether the model as a whole is on another device than the clock reads."""
        clock = self._recorder.clock
        place = self._place_of(self._model)
        index = None if place is None else clock.index_of(place[0][place[1]])
        return clock.device_type is not None and (index is None or index != clock.device_index)

    def follow(self) -> str | None:
        """Have the recorder and the probes read the clocks of the present devices; return the clock's note."""
        note, anchor = None, find_anchor(self._model) if self._follow_kind else None
        if anchor is not None:
            kind = None if anchor.device.type in HOST_TYPES else anchor.device.type
            if kind != self._recorder.clock.device_type:
                clock, note = device_of(anchor.device).clock(anchor.device)
                if clock.device_type != self._recorder.clock.device_type:
                    self._recorder.use_clock(clock)
        self._place_probes()
        return note

    def _place_probes(self) -> None:
        recorder, passes, clock = self._recorder, self._hooks.passes, self._recorder.clock
        self._anchors.clear()
        home = self._device_of(self._model)
        if clock.device_index != home:
            clock.use_device(home)
            recorder.use_clock(clock)
        on_host = clock.device_type is None
        self._probes = [*filter(has_module, self._probes)]
        devices = [None if on_host else self._device_of(probe.module) for probe in self._probes]
        several = len({home, *devices} - {None}) > 1
        if passes.several is not several:
            passes.several = several
            recorder.use_clock(clock)
        around = self._devices_around() if several else {}
        for probe, device in zip(self._probes, devices, strict=True):
            known = around.get(probe.module, home) if device is None else device
            probe.place(self._hooks, known, home, by_input=several and device is None)

    def _devices_around(self) -> dict[nn.Module, int | None]:
        """Return of each module its device, or else that of the nearest module around it."""
        devices = {self._model: self._device_of(self._model)}
        for outer in self._model.modules():
            for child in outer.children():
                if child not in devices:
                    device = self._device_of(child)
                    devices[child] = devices[outer] if device is None else device
        return devices

    def _device_of(self, module: nn.Module) -> int | None:
        """Return the index of a module's device, whose moves are detected from now on; None on the host."""
        place = self._place_of(module)
        if place is None:
            return None
        table, name = place
        self._anchors[id(table), name] = table, name, self._found_device(table[name])
        return self._recorder.clock.index_of(table[name])

    def _place_of(self, module: nn.Module) -> tuple[Any, str] | None:
        index_of = self._recorder.clock.index_of
        return _anchor_place(module, lambda tensor: index_of(tensor) is not None)

    def _found_device(self, tensor: Tensor) -> Any:
        clock = self._recorder.clock
        return tensor.device if clock.device_type is None else clock.index_of(tensor)
