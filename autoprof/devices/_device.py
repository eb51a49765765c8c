"""``Device``: the interface to one kind of device, and the registry of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import torch
from torch import Tensor

from ..base.plugins import PartKind
from ._clock import Clock, HostClock
from ._memory import HostMemory, Memory
from ._monitor import TelemetryReader
from ._peaks import Peak, Tf32Flags

Answer = TypeVar("Answer")


class Device:
    """One kind of device. Each default is right for a device that lacks the capability.

    ``place`` is always the ``torch.device`` of the model; its index may be None, which means the current device.
    """

    types: tuple[str, ...] = ()
    """The ``torch.device.type`` values of this kind; the part of another package precedes a built-in one."""

    @property
    def copy_methods(self) -> tuple[str, ...]:
        """Methods of ``torch.Tensor`` that copy to this device whatever their arguments (``Tensor.cuda``)."""
        return ()

    def clock(self, place: torch.device) -> tuple[Clock, str | None]:
        """Return the clock for work on the device, and a note where there are host times only."""
        return HostClock(), None

    def memory(self, place: torch.device) -> Memory:
        """Return the source of memory readings."""
        return HostMemory()

    def name(self, place: torch.device) -> str:
        """Return the exact name of the device, as its driver gives it."""
        return str(place)

    def peak(self, place: torch.device) -> tuple[Peak | None, str | None]:
        """Return the peak FLOP/s of the device of exactly this name, or the reason why it is unknown."""
        return None, f"no peak is known for a device of type {place.type!r}"

    def tf32(self) -> Tf32Flags:
        """Return whether float32 operands may be rounded to TF32."""
        return Tf32Flags(matmul=False, conv=False)

    def telemetry(self, place: torch.device) -> tuple[TelemetryReader | None, str | None]:
        """Return a reader of utilisation, power and clocks, or the reason why it failed; neither without telemetry."""
        return None, None

    def waiting_calls(self) -> Iterable[tuple[Any, str]]:
        """Yield the calls that make the host wait for the device: the class or module that holds each, and its name.

        Methods of ``torch.Tensor`` (``item``, ``cpu``, …) are known without it.
        """
        return ()

    def in_use(self) -> bool:
        """Return whether this process has begun to use such a device."""
        return False

    def capturing(self) -> bool:
        """Return whether this thread's current stream records a graph: an event query would break the capture."""
        return False

    def random_states(self) -> dict[str, Tensor]:
        """Return the state of each random generator by its device (``cuda:0``); nothing where none is in use."""
        return {}

    def set_random_states(self, states: Mapping[str, Tensor]) -> None:
        """Restore the states that ``random_states`` returned."""


DEVICES: Final = PartKind("device", "autoprof.devices", "DEVICE", Device)
HOST_TYPES: Final = ("cpu", "meta")
"""The ``torch.device.type`` values of tensors in host memory, or in none."""


def device_of(place: torch.device) -> Device:
    """Return the kind of device of a model at this place; parts of other packages come first."""
    kinds = DEVICES.parts
    claiming = (kind for kind in reversed(kinds.values()) if place.type in kind.types)
    # The kind for types that no part claims: torch's generic accelerator interface.
    return next(claiming, kinds["accelerator"])


def ask_devices(question: Callable[[Device], Answer]) -> Iterator[tuple[Device, Answer]]:
    """Yield each kind of device with its answer; one that raises is left out, with one warning.

    The driver of another package's device may be absent on this machine: sessions on other devices must not fail.
    """
    for device in DEVICES.parts.values():
        try:
            answer = question(device)
        except Exception as error:  # the other package's code may raise anything
            DEVICES.exclude_failed(device, error)
        else:
            yield device, answer
