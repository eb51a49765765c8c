"""``global_timer``: intervals on the host and the device, one log a rank, in the documented line format."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from autoprof.compat import global_timer
from autoprof.compat.global_timer import MyTimer
from autoprof.errors import OutputError
from autoprof.frame import Phase
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


def test_intervals_nest_also_of_one_name() -> None:
    """The inner one is closed first; both are written."""
    clock = FakeClock()
    timer = MyTimer(clock=clock)
    for name, ms in (("step", 1), ("forward", 2), ("forward", 4)):
        timer.start(name)
        clock.advance(ms * MS)
    for name in ("forward", "forward", "step"):
        timer.stop(name)
        clock.advance(10 * MS)
    found = [(match[2], match[5]) for match in map(LINE.fullmatch, lines_of(timer.dump())) if match]
    assert found == [("forward", "0.004000"), ("forward", "0.016000"), ("step", "0.027000")]


def test_threads_have_intervals_of_their_own() -> None:
    """Eight threads time the same name at once; each stop ends the start of its own thread."""
    timer = MyTimer(clock=FakeClock(tick_ns=1))
    ready = threading.Barrier(8)

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


def test_an_open_interval_waits_for_the_next_dump() -> None:
    """An open interval is neither written nor lost."""
    timer = MyTimer(clock=FakeClock(tick_ns=MS))
    timer.start("long")
    assert lines_of(timer.dump()) == []
    timer.stop("long")
    assert len(lines_of(timer.dump())) == 1


def test_a_dump_that_cannot_be_written_loses_nothing(tmp_path: Path) -> None:
    """The error names the file; the next dump writes the intervals of both."""
    timer = MyTimer(tmp_path / "logs", clock=FakeClock())
    (tmp_path / "logs").write_text("a file in the way")
    timer.start("a")
    timer.stop("a")
    with pytest.raises(OutputError, match=r"timer_rank0\.log: cannot be written"):
        timer.dump()
    (tmp_path / "logs").unlink()
    assert len(lines_of(timer.dump())) == 1


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


RANK = textwrap.dedent(
    """
    import sys
    from autoprof.compat import global_timer
    global_timer.start("forward")
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method=sys.argv[3], rank=int(sys.argv[1]), world_size=int(sys.argv[2]))
    global_timer.stop("forward")
    global_timer.dump()
    dist.barrier()  # a rank that leaves while another still connects makes that one fail
    dist.destroy_process_group()
    """
)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="needs torch.distributed")
def test_each_rank_writes_its_own_file_with_its_true_rank(tmp_path: Path) -> None:
    """The rank is that of the process group at the dump, though the timer was made before it."""
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    meeting = (tmp_path / "meeting").as_uri()
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK, str(rank), "2", meeting], cwd=tmp_path, env=environment)
        for rank in range(2)
    ]
    assert [process.wait(120) for process in ranks] == [0, 0]
    for rank in range(2):
        (line,) = lines_of(tmp_path / f"time_log/timer_rank{rank}.log")
        assert line.startswith(f"[RANK {rank}] forward, ")


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


def test_a_graph_that_is_compiled_holds_no_interval() -> None:
    """``torch.compile`` of a function with a timer in it makes one whole graph."""
    timer = MyTimer(clock=FakeClock(tick_ns=MS))

    def work(x: torch.Tensor) -> torch.Tensor:
        timer.start("work")
        y = x * 2
        timer.stop("work")
        return y

    compiled: Callable[..., Any] = torch.compile(work, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
