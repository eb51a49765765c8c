"""``global_timer``: intervals on the host and the device, one log a rank, in the documented line format."""

import os
import re
import threading
from pathlib import Path

import pytest
from torch import nn
from waiting import LIMIT_S

from autoprof.base.frame import Phase
from autoprof.compat import global_timer
from autoprof.compat.global_timer import MyTimer
from autoprof.testing import FakeClock, FakeDevice, ListSink, open_session

MS = 1_000_000
LINE = re.compile(
    r"\[RANK (\d+)\] (.+), start=(\d{10}\.\d{6}), end=(\d{10}\.\d{6}), "
    r"cpu_dur=(\d+\.\d{6})s, cuda_dur=(\d+\.\d{3}|nan)ms"
)
"""The documented line, to the digit."""


def lines_of(path: Path) -> list[str]:
    """Return the records of a log, without the banners."""
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("[RANK")]


def test_a_line_has_the_documented_form() -> None:
    """Six decimals for seconds, three for milliseconds; each time from its own clock."""
    clock = FakeClock()
    device = FakeDevice(clock, lag_ns=5 * MS)
    timer = MyTimer(clock=device.device_clock())
    timer.start("forward")
    device.work(830_512_000)
    clock.advance(840_809_000)
    timer.stop("forward")
    (line,) = lines_of(timer.dump())
    match = LINE.fullmatch(line)
    assert match, line
    assert line.startswith("[RANK 0] forward, start=")
    assert line.endswith(", cpu_dur=0.840809s, cuda_dur=840.809ms")
    assert float(match[4]) - float(match[3]) == pytest.approx(0.840809, abs=2e-6)


def test_device_time_is_the_devices() -> None:
    """Where the host only launches, the device's time is longer; neither is shown as the other."""
    clock = FakeClock()
    device = FakeDevice(clock)
    timer = MyTimer(clock=device.device_clock())
    timer.start("forward")
    device.work(100 * MS)
    clock.advance(2 * MS)
    timer.stop("forward")
    assert lines_of(timer.dump())[0].endswith("cpu_dur=0.002000s, cuda_dur=100.000ms")


def test_stop_never_waits_and_dump_does() -> None:
    """The device is asked nothing before the dump."""
    clock = FakeClock()
    device = FakeDevice(clock, lag_ns=50 * MS)
    timer = MyTimer(clock=device.device_clock())
    for _ in range(10):
        timer.start("forward")
        device.work(MS)
        timer.stop("forward")
    assert (device.queries, device.waits) == (0, 0)
    timer.dump()
    assert device.waits > 0


def test_a_second_dump_repeats_nothing() -> None:
    """The log grows by the new intervals; a dump without any adds nothing."""
    timer = MyTimer(clock=FakeClock(tick_ns=MS))
    timer.start("a")
    timer.stop("a")
    path = timer.dump()
    size = path.stat().st_size
    timer.dump()
    assert path.stat().st_size == size
    timer.start("b")
    timer.stop("b")
    assert [line.split(",")[0] for line in lines_of(timer.dump())] == ["[RANK 0] a", "[RANK 0] b"]


def test_threads_have_intervals_of_their_own() -> None:
    """Eight threads time the same name at once; each stop ends the start of its own thread."""
    timer = MyTimer(clock=FakeClock(tick_ns=1))
    ready = threading.Barrier(8, timeout=LIMIT_S)

    def work() -> None:
        for _ in range(50):
            ready.wait()
            timer.start("load")
            ready.wait()
            timer.stop("load")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines_of(timer.dump())) == 400


def test_a_stop_without_a_start_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The training continues; the dump warns with their number."""
    timer = MyTimer(clock=FakeClock())
    timer.stop("never")
    timer.stop("never")
    timer.dump()
    assert caplog.messages == ["global_timer: 2 calls of stop without a start of that name in that thread"]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Without a dump the oldest intervals are dropped and counted."""
    monkeypatch.setattr(global_timer, "MAX_INTERVALS", 3)
    timer = MyTimer(clock=FakeClock())
    for at in range(5):
        timer.start(str(at))
        timer.stop(str(at))
    assert [line.split(",")[0] for line in lines_of(timer.dump())] == [f"[RANK 0] {at}" for at in (2, 3, 4)]
    assert "2 intervals dropped" in caplog.messages[0]


def test_the_module_has_a_timer_of_its_own(tmp_path: Path) -> None:
    """``start``, ``stop`` and ``dump`` of the module write to ``time_log/timer_rank0.log``."""
    global_timer.start("forward")
    global_timer.stop("forward")
    path = global_timer.dump()
    assert path == tmp_path / "time_log/timer_rank0.log"
    assert LINE.fullmatch(lines_of(path)[0])


def test_each_rank_writes_its_own_file_with_its_true_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank is that at the dump, though the timer was made before it was known."""
    timer = MyTimer(clock=FakeClock(tick_ns=MS))
    for rank in ("0", "1"):
        monkeypatch.setenv("WORLD_SIZE", "2")
        monkeypatch.setenv("RANK", rank)
        timer.start("forward")
        timer.stop("forward")
        path = timer.dump()
        assert path.name == f"timer_rank{rank}.log"
        assert lines_of(path)[0].startswith(f"[RANK {rank}] forward, ")


def test_in_an_open_session_intervals_are_spans() -> None:
    """The session's account has them as spans of the user's, nested as they were."""
    clock, sink = FakeClock(), ListSink()
    timer = MyTimer(clock=clock)
    with open_session(nn.Linear(2, 2), {"sinks": {}, "sample": {"warmup": 0}}, clock=clock, sinks=[sink]) as session:
        timer.start("outer")
        clock.advance(MS)
        timer.start("inner")
        clock.advance(2 * MS)
        timer.stop("inner")
        timer.stop("outer")
        session.step()
    outer, inner = sink.frames[0].spans
    assert (outer.name, outer.phase, outer.host_ns) == ("outer", Phase.USER, 3 * MS)
    assert (inner.name, inner.parent, inner.host_ns) == ("inner", 0, 2 * MS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_worker_does_not_write_its_parents_intervals() -> None:
    """A worker's dump has the worker's intervals."""
    timer = MyTimer(clock=FakeClock(tick_ns=MS))
    timer.start("parent")
    timer.stop("parent")
    child = os.fork()
    if not child:
        timer.start("child")
        timer.stop("child")
        timer.dump()
        os._exit(0)
    os.waitpid(child, 0)
    assert sorted(line.split(",")[0] for line in lines_of(timer.dump())) == ["[RANK 0] child", "[RANK 0] parent"]
