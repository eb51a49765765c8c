"""The reader reads the device that torch uses, and leaves None for values that it does not report."""

import pytest
from fake_nvml import FakeNvml

from autoprof.devices._nvml import open_reader

A, B = {"uuid": "GPU-aaaa-1", "busy": 11}, {"uuid": "GPU-bbbb-2", "busy": 22}
CUT = {
    "uuid": "GPU-cccc-3",
    "power": 300_000,
    "slices": [{"uuid": "MIG-dddd-4", "used": 4}, {"uuid": "MIG-eeee-5", "used": 5}],
}


def read(nvml, uuid):
    """Read the device once."""
    reader, reason = open_reader(nvml, uuid)
    assert reason is None
    return reader.read()


def test_a_reading_has_everything_with_its_unit():
    """Fractions, bytes, watts, megahertz, degrees."""
    assert read(FakeNvml(A), "aaaa-1") == {
        "gpu_utilization": 0.11,
        "gpu_memory_bytes": 10,
        "gpu_power_w": 650,
        "gpu_sm_clock_mhz": 1755,
        "gpu_memory_clock_mhz": 2619,
        "gpu_temperature_c": 64,
        "gpu_throttled": 0,
        "gpu_throttled_by_power_cap": 0,
        "gpu_throttled_by_hardware_slowdown": 0,
        "gpu_throttled_by_software_thermal_slowdown": 0,
        "gpu_throttled_by_hardware_thermal_slowdown": 0,
        "gpu_throttled_by_power_brake": 0,
    }


def test_the_uuid_decides_whatever_the_numbers_say():
    """torch may number the devices otherwise than the bus does."""
    assert read(FakeNvml(A, B), "bbbb-2")["gpu_utilization"] == 0.22
    assert read(FakeNvml(A, B), "GPU-BBBB-2")["gpu_utilization"] == 0.22


def test_a_slice_is_read_as_a_slice():
    """Its memory is its own; power and clocks are the whole device's; NVML does not tell how busy it is."""
    reading = read(FakeNvml(A, CUT), "eeee-5")
    assert reading["gpu_memory_bytes"] == 5
    assert reading["gpu_power_w"] == 300
    assert "gpu_utilization" not in reading


@pytest.mark.parametrize(
    ("nvml", "uuid", "why"),
    [
        (FakeNvml(A, starts=False), "aaaa-1", "NVML does not start: Driver Not Loaded"),
        (FakeNvml(A), "zzzz", "NVML has no device 'zzzz': Not Found"),
        (FakeNvml(A), None, "does not give the UUID"),
    ],
)
def test_a_device_that_is_not_identified_is_not_guessed(nvml, uuid, why):
    """There is no reader, a reason, and NVML is given back."""
    reader, reason = open_reader(nvml, uuid)
    assert reader is None
    assert why in reason
    assert nvml.users == 0


def test_what_a_device_does_not_tell_is_absent_and_asked_once():
    """A consumer card has no power limit; asking each second would be for nothing."""
    nvml = FakeNvml(A)
    nvml.unsupported = {"power", "throttle"}
    reader, _ = open_reader(nvml, "aaaa-1")
    readings = [reader.read() for _ in range(3)]
    assert not any("gpu_power_w" in reading or "gpu_throttled" in reading for reading in readings)
    assert nvml.calls.count("power") == 1
    assert nvml.calls.count("temperature") == 3


def test_a_driver_that_fails_once_is_asked_again():
    """A value missed is absent, not zero and not the old one."""
    nvml = FakeNvml(A)
    reader, _ = open_reader(nvml, "aaaa-1")
    nvml.broken = {"memory", "clock"}
    assert not {"gpu_memory_bytes", "gpu_sm_clock_mhz"} & set(reader.read())
    nvml.broken = set()
    assert reader.read()["gpu_memory_bytes"] == 10
