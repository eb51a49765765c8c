"""The host is read without a dependency, and readings are taken beside the training."""

import threading

import pytest
import torch
from waiting import LIMIT_S

from autoprof.devices import HostReader, Monitor, heap_bytes


class Ticking:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def stat_line(user, idle, iowait=0):
    """Write the first line of /proc/stat."""
    return f"cpu  {user} 0 0 {idle} {iowait} 0 0 0 0 0\ncpu0 1 2 3\n"


def test_processor_time_is_a_rate_since_the_last_reading(tmp_path):
    """The first reading has none to compare with: not measured is not zero."""
    stat, wall, cpu = tmp_path / "stat", Ticking(), Ticking()
    stat.write_text(stat_line(100, 900))
    reader = HostReader(stat, wall, cpu)
    assert set(reader.read()) == {"host_rss_bytes"}
    wall.now, cpu.now = 2_000_000_000, 3_000_000_000
    stat.write_text(stat_line(175, 920, 5))
    second = reader.read()
    assert second["host_cpu_cores"] == 1.5
    assert second["host_cpu_busy"] == pytest.approx(0.75)
    reader.close()


def test_the_thread_s_wait_for_a_processor_is_a_share_of_the_time(tmp_path):
    """It waited for half a second of two."""
    schedule, wall = tmp_path / "schedstat", Ticking()
    schedule.write_text("1000000000 7000000000 5\n")
    reader = HostReader(tmp_path / "stat", wall, Ticking(), schedule)
    assert "host_cpu_waiting" not in reader.read()
    wall.now = 2_000_000_000
    schedule.write_text("1500000000 7500000000 9\n")
    second = reader.read()
    assert second["host_cpu_waiting"] == 0.25
    reader.close()


@pytest.mark.parametrize("text", [None, "", "cpu\n", "cpu a b\n"])
def test_a_machine_that_does_not_tell_has_no_figure(tmp_path, text):
    """No /proc, or another one."""
    stat = tmp_path / "stat"
    if text is not None:
        stat.write_text(text)
    reader = HostReader(stat)
    reader.read()
    reading = reader.read()
    assert "host_cpu_busy" not in reading
    assert "host_cpu_cores" in reading
    reader.close()


class Source:
    """A reader that counts its calls, and fails on request."""

    def __init__(self) -> None:
        self.reads, self.closed, self.fails = 0, False, False
        self.happened = threading.Event()

    def read(self) -> dict[str, float]:
        self.reads += 1
        self.happened.set()
        if self.fails:
            raise OSError("gone")
        return {"reads": self.reads}

    def close(self) -> None:
        self.closed = True


def test_a_source_that_fails_has_no_reading():
    """An old reading is not shown as a new one, and a reader that has failed is not called again."""
    source = Source()
    monitor = Monitor(source)
    monitor.read_now()
    source.fails = True
    for _ in range(5):
        monitor.read_now()
    assert monitor.latest is None
    assert monitor.problem == "OSError: gone"
    assert source.reads == 1 + 1
    monitor.close()
    assert source.closed


def test_a_thread_reads_and_ends():
    """At once when it is started; close stops it and closes the sources, twice does no harm."""
    source = Source()
    monitor = Monitor(source, period_s=3600)
    monitor.start()
    monitor.start()
    assert source.happened.wait(LIMIT_S)
    assert sum(thread.name == "autoprof-monitor" for thread in threading.enumerate()) == 1
    monitor.close(patience_s=LIMIT_S)
    monitor.close()
    assert source.closed
    assert source.reads == 1
    assert not any(thread.name == "autoprof-monitor" for thread in threading.enumerate())


def test_a_source_that_hangs_does_not_hold_up_the_end():
    """A driver may never answer; it is then not closed under the call."""
    release = threading.Event()

    class Hangs(Source):
        def read(self) -> dict[str, float]:
            self.happened.set()
            release.wait(LIMIT_S)
            return {}

    source = Hangs()
    monitor = Monitor(source)
    monitor.start()
    assert source.happened.wait(LIMIT_S)
    monitor.close(patience_s=0)
    assert not source.closed
    release.set()


def test_the_memory_in_use_is_that_of_living_tensors() -> None:
    """Freed memory that the C library keeps does not count."""
    before = heap_bytes()
    if before is None:
        pytest.skip("needs the allocator of the GNU C library")
    tensors = [torch.zeros(25_000) for _ in range(400)] + [torch.zeros(10_000_000)]
    held = heap_bytes()
    tensors.clear()
    after = heap_bytes()
    assert held is not None
    assert after is not None
    assert held - before == pytest.approx(80e6, rel=0.05)
    assert held - after == pytest.approx(80e6, rel=0.05)
