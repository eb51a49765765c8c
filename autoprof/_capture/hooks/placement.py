"""Find the device of each instrumented module, so that its forward is timed on the stream of its kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from torch import Tensor, nn

from ...devices import HOST_TYPES, Clock, device_of
from ..recorder import Recorder
from .module import ModuleProbe
from .module_hooks import NO_DEVICE, Hooks

SEVERAL_DEVICES: Final = "modules without backward: the model is on several devices"


def find_anchor(model: nn.Module) -> Tensor | None:
    """Return the tensor whose device is the model's: its first parameter on an accelerator, or else its first.

    A part on the CPU, or on ``meta`` until it is called, does not make it a model of the CPU.
    """
    place = _anchor_place(model)
    return None if place is None else place[0][place[1]]


def _anchor_place(model: nn.Module) -> tuple[Any, str] | None:
    """Return the table that holds the anchor, and its name there."""
    first = None
    for table, name, tensor in _tensors(model):
        if tensor.device.type not in HOST_TYPES:
            return table, name
        first = (table, name) if first is None else first
    return first


def _tensors(model: nn.Module) -> Iterator[tuple[Any, str, Tensor]]:
    """Yield the parameters, then the buffers: the table of a module, the name in it, and the tensor."""
    for kind in ("_parameters", "_buffers"):
        for module in model.modules():
            table = getattr(module, kind)
            for name, tensor in table.items():
                if tensor is not None:
                    yield table, name, tensor


class _Evidence(NamedTuple):
    """The tensor that shows a module's device: its table and name in it, and the device."""

    table: Any
    name: str
    device: int


class Placement:
    """Have each probe read the clock of its module's device, and detect modules that have moved.

    A module is on the device of its first parameter or buffer, and one without any on that of the model. In a model on
    several devices modules have no backward, and those without parameters no device time.
    """

    def __init__(self, model: nn.Module, recorder: Recorder, hooks: Hooks, *, follow_kind: bool = True) -> None:
        self._model = model
        self._recorder = recorder
        self._hooks = hooks
        self._probes: list[ModuleProbe] = []
        self._anchor_place = _anchor_place(model) if follow_kind else None
        anchor = self._anchor()
        self._on_host = anchor is None or anchor.is_cpu
        self._evidence: dict[tuple[int, str], _Evidence] = {}
        self._place_probes()

    def add(self, probes: Sequence[ModuleProbe]) -> None:
        """Place these probes too, and from now on follow their modules."""
        known = set(map(id, self._probes))
        self._probes += [probe for probe in probes if id(probe) not in known]
        self._place_probes()

    def moved(self) -> bool:
        """Return whether a module has moved to another device: one check on a host clock, else one a module."""
        anchor = self._anchor()
        if anchor is not None and anchor.is_cpu is not self._on_host:
            return True
        index_of = self._recorder.clock.index_of
        try:
            return any([index_of(table[name]) != device for table, name, device in self._evidence.values()])  # noqa: C419
        except KeyError:  # a parameter that was removed
            return True

    def _anchor(self) -> Tensor | None:
        """Return the tensor that is in the anchor's place now: a move to some backends replaces the parameters."""
        if self._anchor_place is None:
            return None
        table, name = self._anchor_place
        if name not in table:  # a scripted module's table is no dict
            return None
        found: Tensor = table[name]
        return found

    def has_left(self) -> bool:
        """Return whether the model as a whole is on another device than the clock reads."""
        clock = self._recorder.clock
        evidence = _find(self._model, clock)
        return clock.device_type is not None and (evidence is None or evidence.device != clock.device_index)

    def follow(self) -> str | None:
        """Have the recorder and the probes read the clocks of the present devices; return the clock's note."""
        note = None
        anchor = self._anchor()
        if anchor is not None and anchor.is_cpu is not self._on_host:
            self._on_host, device = anchor.is_cpu, anchor.device
            clock, note = device_of(device).clock(device)
            if clock.device_type != self._recorder.clock.device_type:
                self._recorder.use_clock(clock)
        self._place_probes()
        return note

    def _place_probes(self) -> None:
        recorder, clock = self._recorder, self._recorder.clock
        self._evidence.clear()
        home = self._device_of(self._model)
        if clock.device_index != home:
            clock.use_device(home)
            recorder.use_clock(clock)
        devices = [self._device_of(probe.module) for probe in self._probes]
        several = len({home, *devices} - {None}) > 1
        if several:
            recorder.untimed[SEVERAL_DEVICES] = len(self._probes)
        self._hooks.passes.several = several
        for probe, device in zip(self._probes, devices, strict=True):
            unknown = NO_DEVICE if several else home
            probe.place(self._hooks, unknown if device is None else device, home)

    def _device_of(self, module: nn.Module) -> int | None:
        """Return the device of a module by its own tensors, whose moves are detected from now on."""
        evidence = _find(module, self._recorder.clock)
        if evidence is None:
            return None
        self._evidence[id(evidence.table), evidence.name] = evidence
        return evidence.device


def _find(model: nn.Module, clock: Clock) -> _Evidence | None:
    """Return the first parameter, or else the first buffer, on a device of the clock's kind."""
    if clock.device_type is None:
        return None
    for table, name, tensor in _tensors(model):
        index = clock.index_of(tensor)
        if index is not None:
            return _Evidence(table, name, index)
    return None
