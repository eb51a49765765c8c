"""The device that is measured: CUDA, or the simulated accelerator of the tests, on which the whole run can be tried."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

from autoprof.devices import EventSource
from autoprof.devices.accelerator import AcceleratorEvents
from autoprof.devices.cuda import CudaEvents

from .kernels import Sleep, calibrate

NAMES = ("cuda", "sim")


class NoDeviceError(Exception):
    """The device is not there; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Target:
    """A device and the calls that the measurements need of it."""

    place: torch.device
    events: Callable[[], EventSource]
    """Make autoprof's source of events."""
    event: Callable[[], Any]
    """Make a timed event, as a user does."""
    synchronize: Callable[[], object]
    calibrate: Callable[[], Sleep]
    """Return ``sleep(ns)``, a kernel of known length."""
    no_synchronisation: Callable[[], AbstractContextManager[None]]
    """Raise ``RuntimeError`` where the host waits for the device inside a block."""


@contextmanager
def no_synchronisation() -> Iterator[None]:
    """Make torch raise wherever it knows that the host waits for a CUDA device."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def cuda() -> Target:
    """Return the current CUDA device."""
    return Target(
        place=torch.device("cuda"),
        events=CudaEvents,
        event=lambda: torch.cuda.Event(enable_timing=True),  # type: ignore[no-untyped-call]
        synchronize=torch.cuda.synchronize,
        calibrate=calibrate,
        no_synchronisation=no_synchronisation,
    )


def simulated() -> Target:
    """Build and load the simulated accelerator. Raises ``NoDeviceError`` where that cannot be done."""
    source = import_module("tests.simulated.simulated_accelerator")
    try:
        accelerator = source.load()
    except source.CannotBuildError as error:
        raise NoDeviceError(str(error)) from None

    @contextmanager
    def count_waits() -> Iterator[None]:
        before = accelerator.waits
        yield
        if accelerator.waits != before:
            raise RuntimeError(f"the host waited {accelerator.waits - before} times")

    return Target(
        place=torch.device("sim"),
        events=lambda: AcceleratorEvents("sim"),
        event=lambda: torch.Event(device="sim", enable_timing=True),
        synchronize=torch.accelerator.synchronize,
        calibrate=lambda: accelerator.sleep,
        no_synchronisation=count_waits,
    )


def find_target(name: str) -> Target:
    """Return the device of this name. Raises ``NoDeviceError`` where it is not there."""
    if name == "sim":
        return simulated()
    if not torch.cuda.is_available():
        raise NoDeviceError("torch sees no CUDA device here; run it on a machine that has one, or pass --device sim")
    return cuda()
