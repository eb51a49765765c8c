"""Files that hold whole lines only, and the two sinks that write them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kept_steps import kept_steps
from sink_builders import Clock, frame_of, summary_of
from waiting import LIMIT_S

from autoprof.base.storage.line_file import LineFile
from autoprof.base.storage.runs import RunFolder
from autoprof.errors import OutputError
from autoprof.sinks._base import RunInfo
from autoprof.sinks.jsonl import JsonlOptions, JsonlSink
from autoprof.sinks.log import LogOptions, LogSink


def run_info(tmp_path: Path, clock: Clock, rank: int = 0) -> RunInfo:
    folder = RunFolder.create(tmp_path, rank=rank)
    return RunInfo(folder, rank, sys.stdout, clock)


def test_lines_wait_until_they_are_due(tmp_path: Path, clock: Clock) -> None:
    """Nothing is written before the time has passed, and everything then."""
    path = tmp_path / "lines"
    file = LineFile(path, 5.0, clock)
    file.write("a\n")
    assert path.read_text() == ""
    clock.now = 5.0
    file.write("b\n")
    assert path.read_text() == "a\nb\n"
    file.close()


def test_a_write_that_fails_half_way_leaves_whole_lines(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the disk fills up inside a line, the torn line is cut off and the error raised."""
    path = tmp_path / "lines"
    file = LineFile(path, 0.0, clock)
    file.write("first\n")
    write, calls = os.write, []

    def full(descriptor: int, data: bytes) -> int:
        calls.append(1)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:3])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        file.write("second\n")
    monkeypatch.undo()
    file.close()
    assert path.read_text() == "first\n"


def test_a_file_that_cannot_be_opened_fails_at_set_up(tmp_path: Path, clock: Clock) -> None:
    """A sink without its file is an error before the first step."""
    (tmp_path / "lines").mkdir()
    with pytest.raises(OutputError, match=r"lines: cannot be written \(Is a directory\); it must be a file"):
        LineFile(tmp_path / "lines", 1.0, clock)


def test_the_log_averages_steps_it_does_not_show(tmp_path: Path, clock: Clock) -> None:
    """With ``every: 2`` the average is still of all steps."""
    run = run_info(tmp_path, clock)
    sink = LogSink(LogOptions(every=2), run)
    for step, ms in ((1, 10), (2, 30), (3, 35)):
        sink.write(frame_of((("A", "forward", -1, ms),), step=step))
    sink.close(summary_of([]))
    assert run.folder is not None
    text = (run.folder.rank_path / "timing.log").read_text()
    assert "35.000ms (  3.5%) [avg:     25.000ms]" in text
    assert [step for step in (1, 2, 3) if f"Step {step}\n" in text] == [1, 3]


_WRITER = """
import signal, sys
signal.alarm(int(sys.argv[3]))  # a writer that hangs dies of it
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from autoprof.sinks.jsonl import JsonlOptions
from autoprof.base.storage.runs import RunFolder
from autoprof.sinks._base import RunInfo
from autoprof.sinks.jsonl import JsonlSink
from sink_builders import frame_of, summary_of
folder = RunFolder.create(Path(sys.argv[1]))
sink = JsonlSink(JsonlOptions(flush_s=0.001), RunInfo(folder, 0, sys.stdout))
print(folder.path, flush=True)
step, file = 0, folder.path / "rank0" / "steps.jsonl"
while True:
    step += 1
    sink.write(frame_of(step=step))
    if step >= 50 and file is not None and file.stat().st_size:
        print("running", flush=True)
        file = None
"""


def test_a_killed_process_leaves_whole_lines_but_for_the_last_one(tmp_path: Path) -> None:
    """After ``kill -9`` in the middle of writing, the frames of the file are the first ones, without a gap."""
    command = [sys.executable, "-c", _WRITER, str(tmp_path), str(Path(__file__).parent), str(LIMIT_S)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        path = writer.stdout.readline().strip()
        assert writer.stdout.readline() == "running\n"
        os.kill(writer.pid, signal.SIGKILL)
    assert kept_steps(Path(path))


def test_lines_that_a_kill_has_cut_anywhere_are_the_first_ones(tmp_path: Path) -> None:
    """The kernel may end the last write after any byte of it."""
    folder = RunFolder.create(tmp_path)
    sink = JsonlSink(JsonlOptions(flush_s=3600), RunInfo(folder, 0, sys.stdout))
    for step in (1, 2, 3):
        sink.write(frame_of(step=step))
    sink.close(summary_of([]))
    records = folder.rank_path / "steps.jsonl"
    text = records.read_bytes()
    for length in range(0, len(text), 7):
        records.write_bytes(text[:length])
        whole = text[:length].count(b"\n")
        assert kept_steps(folder.path) in (list(range(1, whole + 1)), list(range(1, whole + 2)))
