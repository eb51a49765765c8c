"""A mark is one reading and one append; buffers and names are bounded, and what they lose is counted."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import torch

from autoprof._capture import recorder as recording
from autoprof._capture.marks.codes import ENTER, KIND_BITS, THREAD
from autoprof._capture.marks.mark_batch import MarkBatch
from autoprof._capture.recorder import Recorder
from autoprof.devices import HostClock, device_of
from autoprof.testing import FakeClock


def marks_of(batch: MarkBatch) -> list[tuple[int, int]]:
    """Return the code and the reading of each mark."""
    return list(zip(map(int, batch.codes), map(int, batch.readings), strict=True))


def test_a_mark_of_another_thread_follows_a_mark_that_names_it() -> None:
    """Marks of the training thread need none."""
    recorder = Recorder(FakeClock(tick_ns=1))
    names = []

    def on_another_thread() -> None:
        names.append(threading.get_ident())
        recorder.mark(ENTER)

    thread = threading.Thread(target=on_another_thread)
    thread.start()
    thread.join()
    batch = recorder.take()
    assert marks_of(batch) == [(THREAD, names[0]), (ENTER, 0)]
    assert batch[2:5] == (threading.get_ident(), True, 0)
    recorder.mark(ENTER)
    assert not recorder.take().multithreaded


def test_names_beyond_the_limit_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names made up anew each time cannot fill the memory."""
    monkeypatch.setattr(recording, "MAX_USER_NAMES", 3)
    recorder = Recorder(FakeClock())
    codes = [recorder.user_code(f"name {i}") for i in range(50)]
    assert len(set(codes)) == 4
    assert len(recorder.labels) == 4
    assert recorder.labels[codes[-1] >> KIND_BITS].name == "(beyond 3 names)"
    assert recorder.user_code("name 1") == codes[1]


def test_two_threads_share_the_buffer_without_a_lock() -> None:
    """No mark is lost or torn, however the threads interleave."""
    recorder = Recorder(HostClock())
    codes = [recorder.user_code(f"t{i}") for i in range(4)]
    together = threading.Barrier(len(codes))  # a thread that has ended may leave its number to the next one

    def work(code: int) -> None:
        together.wait()
        for _ in range(500):
            recorder.mark(code)

    threads = [threading.Thread(target=work, args=(code,)) for code in codes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    batch = recorder.take()
    assert batch.multithreaded
    marks, owners = marks_of(batch), {}
    for (kind, thread), (code, _) in zip(marks[0::2], marks[1::2], strict=True):
        assert kind == THREAD
        owners.setdefault(thread, set()).add(code)
    assert len(marks) == 2 * 4 * 500
    assert sorted(owners.values(), key=min) == [{code} for code in codes]


def test_a_cpu_model_gets_the_host_clock() -> None:
    """No note, for nothing is missing."""
    clock, note = device_of(torch.device("cpu")).clock(torch.device("cpu"))
    assert isinstance(clock, HostClock)
    assert note is None


def test_an_accelerator_without_timed_events_gets_the_host_clock_and_says_so() -> None:
    """Not measured is said, not invented."""
    clock, note = device_of(torch.device("xpu")).clock(torch.device("xpu"))
    assert isinstance(clock, HostClock)
    assert note is not None
    assert "host times only" in note


def test_without_the_extension_instrument_says_what_to_do_and_the_rest_works() -> None:
    """A build that older sources left behind counts as none."""
    code = (
        "import sys, types; old = types.ModuleType('autoprof._capture.marks._c'); old.SOURCE_HASH = 'other'; "
        "sys.modules['autoprof._capture.marks._c'] = old; import torch, autoprof, autoprof.compare\n"
        "try: autoprof.instrument(torch.nn.Linear(1, 1), {'sinks': {}})\n"
        "except autoprof.errors.SessionError as error: print(error)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "install a C compiler" in found.stdout
