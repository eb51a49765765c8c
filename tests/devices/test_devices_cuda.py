"""The CUDA device against a double of ``torch.cuda``: which function of torch answers which question."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from autoprof.devices import device_of
from autoprof.devices.cuda import CudaEvents

CUDA = device_of(torch.device("cuda"))
SECOND = torch.device("cuda", 1)
GIB = 1 << 30


class Stream:
    """A stream of the double, as ``torch.cuda.Stream``."""

    def __init__(self, device: int, number: int) -> None:
        self.device_index, self.stream_id = device, number


class Event:
    """An event of the double that keeps the streams it was recorded on."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.timed, self.streams = enable_timing, list[Any]()

    def record(self, stream: Any) -> None:
        self.streams.append(stream)


class Driver:
    """Two devices in the place of ``torch.cuda``."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.current, self.streams, self.captured = 0, {0: 0, 1: 0}, set[int]()
        self.made, self.initialized = 0, True
        self.states = [torch.tensor([7]), torch.tensor([8])]
        for name, value in {
            "Event": Event,
            "current_device": lambda: self.current,
            "current_stream": self.current_stream,
            "device": self.device,
            "device_count": lambda: 2,
            "get_device_name": lambda place: f"Double {torch.device(place).index}",
            "get_device_properties": lambda index: SimpleNamespace(total_memory=(index + 1) * GIB, uuid=None),
            "get_rng_state": lambda index: self.states[index],
            "set_rng_state": lambda state, index: self.states.__setitem__(index, state),
            "is_available": lambda: True,
            "is_current_stream_capturing": lambda: self.current in self.captured,
            "is_initialized": lambda: self.initialized,
            "memory_stats_as_nested_dict": stats,
        }.items():
            patch.setattr(torch.cuda, name, value)
            if hasattr(torch.cuda.random, name):
                patch.setattr(torch.cuda.random, name, value)
        patch.setattr(torch._C, "_cuda_getDevice", lambda: self.current, raising=False)
        patch.setattr(torch._C, "_cuda_getCurrentStream", lambda index: (self.streams[index], index, 1), raising=False)

    def current_stream(self, device: int) -> Stream:
        self.made += 1
        return Stream(device, self.streams[device])

    @contextmanager
    def device(self, index: int) -> Iterator[None]:
        before, self.current = self.current, index
        yield
        self.current = before


def stats(index: int) -> dict[str, Any]:
    level = {"all": {"current": 1000 + index, "peak": 2000 + index}}
    return {"allocated_bytes": level, "reserved_bytes": level, "num_alloc_retries": 0, "num_ooms": 0}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


def test_an_event_goes_to_the_current_stream_and_a_stream_object_is_made_once(driver: Driver) -> None:
    """Of the current device, or of the device asked for; streams are found by their number."""
    source = CudaEvents()
    places = [source.here(), source.here(), source.here(1)]
    driver.streams[0] = 5
    places.append(source.here())
    assert places == [(0, 0), (0, 0), (1, 0), (0, 5)]
    assert driver.made == 3
    event = source.new()
    assert event.timed
    source.record(event, (0, 5))
    assert (event.streams[0].device_index, event.streams[0].stream_id) == (0, 5)


def test_there_is_no_place_while_a_stream_is_captured(driver: Driver) -> None:
    """On this device, or on the one asked for; the current device is what it was."""
    source = CudaEvents()
    driver.captured = {1}
    assert (source.here(), source.here(1), driver.current) == ((0, 0), None, 0)
    driver.captured = {0}
    assert (source.here(), source.here(1), CUDA.capturing()) == (None, None, True)
    driver.initialized = False
    assert not CUDA.capturing()


def test_memory_is_the_caching_allocators(driver: Driver) -> None:
    """Of the device asked for; without an index, of the current one."""
    driver.current = 1
    for place, index in ((torch.device("cuda", 0), 0), (torch.device("cuda"), 1)):
        memory = CUDA.memory(place)
        assert (memory.level_bytes(), memory.at_mark()) == (1000 + index, (1000 + index, 2000 + index))
        assert memory.capacity_bytes() == (index + 1) * GIB
        memory.close()


def test_name_and_random_states(driver: Driver) -> None:
    """Each generator by its device; nothing of a device that is not in use."""
    assert CUDA.name(SECOND) == "Double 1"
    assert (CUDA.copy_methods, CUDA.in_use()) == (("cuda",), True)
    states = CUDA.random_states()
    assert {name: int(state) for name, state in states.items()} == {"cuda:0": 7, "cuda:1": 8}
    driver.states = [torch.tensor([0]), torch.tensor([0])]
    CUDA.set_random_states(states)
    assert [int(state) for state in driver.states] == [7, 8]
    driver.initialized = False
    assert (CUDA.random_states(), CUDA.in_use()) == ({}, False)


def test_every_call_of_torchs_modules_that_waits_is_known() -> None:
    """Of the module, of its streams and of its events; ``torch.accelerator.synchronize`` waits for CUDA, too."""
    calls = set(CUDA.waiting_calls())
    expected = {(owner, "synchronize") for owner in (torch.cuda, torch.cuda.Event, torch.cuda.Stream)}
    if hasattr(torch, "accelerator"):
        expected.add((torch.accelerator, "synchronize"))
    assert calls == expected


def test_a_tensor_of_the_host_is_on_no_device(driver: Driver) -> None:
    """Nor is one without memory."""
    source = CudaEvents()
    assert source.index_of(torch.ones(1)) is None
    assert source.index_of(torch.ones(1, device="meta")) is None
