"""``TimingLogger``: the features that the first seed documents, without its weaknesses."""

from __future__ import annotations

import io
import os
import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from compat_builders import MS, Program
from forking_python import ForkingPython

from autoprof.compat.timing_logger import TimingLogger, log_timing, set_global_timing_logger
from autoprof.errors import OutputError

Make = Callable[..., Program]


def log_of(program: Program) -> str:
    """Return the complete log."""
    program.logger.close()
    assert program.logger.log_file is not None
    return program.logger.log_file.read_text(encoding="utf-8")


def totals(text: str) -> list[float]:
    """Return the Total of every section."""
    return [float(ms) for ms in re.findall(r"^Total-+: +([\d.]+)ms", text, re.MULTILINE)]


# The weaknesses.


def test_a_total_counts_nothing_twice(make_program: Make) -> None:
    """1805.28, of which 1799.99 and 5.26 are parts that have names of their own, is a step of 1805.28."""
    program = make_program()
    program.vrt_step()
    text = log_of(program)
    assert totals(text) == [1805.28]
    assert "3610.53" not in text
    assert re.search(r"VRT处理 +: +1799\.99ms \( 99\.7%\)", text)


def test_a_second_call_of_a_name_adds_to_the_first(make_program: Make) -> None:
    """Two calls of 20 and 30 ms in one step are 50 ms and two calls, not the last one."""
    program = make_program()
    program.take("Attention", 20)
    program.take("Attention", 30)
    program.logger.step()
    (row,) = program.logger.summary().rows
    assert (row.calls, row.steps, row.mean_ns) == (2, 1, 50 * MS)


def test_a_name_without_its_parent_is_shown(make_program: Make, stream: io.StringIO) -> None:
    """A name whose parent was not logged is listed below a header: in the log, on the console and in the summary."""
    program = make_program(console_update_interval=1)
    program.take("VRT处理/Stage1", 25)
    program.take("VRT处理/Stage2", 15)
    program.logger.step()
    assert "Stage1" in stream.getvalue()
    program.logger.print_summary()
    text = log_of(program)
    assert re.search(r"^VRT处理 +: +40\.00ms \(100\.0%\) \[avg: +40\.00ms\] \(sum of parts\)$", text, re.MULTILINE)
    assert re.search(r"^  - Stage1 +: +25\.00ms \[avg: +25\.00ms\]$", text, re.MULTILINE)
    assert re.search(r"^VRT处理/Stage1 +: avg=  25\.00ms", text, re.MULTILINE)


def test_the_summary_stays_on_the_screen_after_close(
    make_program: Make, monkeypatch: pytest.MonkeyPatch, on_terminal: Any
) -> None:
    """``close`` gives the screen back and wipes nothing that ``print_summary`` has printed."""
    terminal = on_terminal()
    program = make_program(stream=terminal, console_update_interval=1)
    for _ in range(3):
        program.take("forward", 280)
        program.logger.step()
    assert "forward" in "\n".join(terminal.screen.text)
    program.logger.print_summary()
    program.logger.close()
    shown = "\n".join([*terminal.screen.scrolled, *terminal.screen.text])
    assert "Timing Summary (Total 3 steps)" in shown
    assert re.search(r"forward +: avg= 280\.00ms  min= 280\.00ms  max= 280\.00ms  \(n=3\)", shown)
    assert not [line for line in terminal.screen.text if line.startswith("┌─ autoprof")]


# What the seed documents.


def test_the_log_has_the_documented_name_and_form(make_program: Make) -> None:
    """``timing_{timestamp}.log``; a section a step: rules, number, names in descending order, averages, Total."""
    program = make_program()
    program.vrt_step()
    program.vrt_step()
    assert program.logger.log_file is not None
    assert re.fullmatch(r"timing_\d{10}\.log", program.logger.log_file.name)
    section = log_of(program).split("\n" + "=" * 80 + "\nStep 2\n" + "=" * 80 + "\n")[1]
    heads = [line.split(":")[0].strip() for line in section.splitlines() if ":" in line]
    assert heads == [
        "前向传播总耗时",
        "VRT处理",
        "- Stage8",
        "- Stage2",
        "Spike编码器",
        "other",
        "Total-----------------------------------",
    ]
    assert re.search(r"^前向传播总耗时 +: +1805\.28ms \(100\.0%\) \[avg: +1805\.28ms\]$", section, re.MULTILINE)
    assert re.search(r"^  - Stage8 +: +965\.00ms \[avg: +965\.00ms\]$", section, re.MULTILINE)
    assert re.search(r"^Total-----------------------------------: +1805\.28ms$", section, re.MULTILINE)


def test_the_console_shows_the_five_longest_top_names_in_place(make_program: Make, on_terminal: Any) -> None:
    """Each Nth step the panel is drawn where it was; six names leave five and the rest; parts are not shown."""
    terminal = on_terminal()
    program = make_program(stream=terminal, console_update_interval=2)
    for step in range(4):
        for at, name in enumerate("ABCDEF"):
            program.take(name, 10 * (at + 1))
        with program.timed("G"):
            program.take("G/part", 100)
        program.logger.step()
        assert bool(terminal.writes) is (step > 0)
    shown = [line for line in terminal.screen.text if line.strip()]
    assert sum("autoprof · step" in line for line in shown) == 1
    names = [line.split()[1] for line in shown if "█" in line]
    assert names == ["G", "F", "E", "D", "C"]
    assert not any("part" in line for line in shown)


def test_without_a_terminal_a_plain_line_is_printed(make_program: Make, stream: io.StringIO) -> None:
    """A pipe gets a line at times and no escape sequence."""
    program = make_program(console_update_interval=2)
    for _ in range(8):
        program.vrt_step()
    assert stream.getvalue().count("autoprof | step") == 2
    assert "\x1b" not in stream.getvalue()


def test_console_and_file_can_be_switched_off(make_program: Make, stream: io.StringIO, tmp_path: Path) -> None:
    """Without the file there is no folder, without the console no output; the statistics are there all the same."""
    program = make_program(enable_console=False, enable_file=False, console_update_interval=1)
    program.vrt_step()
    assert (program.logger.log_file, stream.getvalue(), list(tmp_path.iterdir())) == (None, "", [])
    assert program.logger.summary().steps == 1


def test_the_file_is_flushed_each_nth_step(make_program: Make) -> None:
    """What a killed program leaves is at most N steps short, in whole lines."""
    program = make_program(file_flush_interval=2)
    assert program.logger.log_file is not None
    sizes = []
    for _ in range(4):
        program.vrt_step()
        sizes.append(program.logger.log_file.read_text(encoding="utf-8").count("\nStep "))
    assert sizes == [0, 2, 2, 4]


def test_only_rank_0_records(make_program: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another rank touches no file and prints nothing."""
    monkeypatch.setenv("RANK", "1")
    program = make_program(console_update_interval=1)
    program.vrt_step()
    program.logger.print_summary()
    assert (program.logger.summary().steps, list(tmp_path.iterdir())) == (0, [])


def test_threads_may_log_at_once(make_program: Make) -> None:
    """Eight threads log a thousand times each; nothing is lost, and it makes no step longer."""
    program = make_program()

    def work() -> None:
        for _ in range(1000):
            program.logger.log_timing("loader", 1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    program.take("forward", 50)
    program.logger.step()
    rows = {row.name: row for row in program.logger.summary().rows}
    assert (rows["loader"].calls, rows["loader"].total_ns) == (8000, 8000 * MS)
    assert totals(log_of(program)) == [50]


def test_the_global_logger_takes_what_any_code_logs(make_program: Make) -> None:
    """``log_timing`` does nothing before a logger is set, and after it is removed."""
    log_timing("nowhere", 1.0)
    program = make_program()
    set_global_timing_logger(program.logger)
    log_timing("here", 2.0)
    set_global_timing_logger(None)
    log_timing("nowhere", 3.0)
    program.logger.step()
    assert [row.name for row in program.logger.summary().rows] == ["here"]


@pytest.mark.parametrize("value", ["fast", None, float("nan"), -1.0, float("inf"), torch.ones(2)])
def test_invalid_durations_are_counted_and_raise_nothing(make_program: Make, value: Any) -> None:
    """A training step goes on; the statistics say how many values were refused."""
    program = make_program()
    program.logger.log_timing("odd", value)
    program.take("forward", 1)
    program.logger.step()
    summary = program.logger.summary()
    assert [row.name for row in summary.rows] == ["forward"]
    assert summary.skipped == {"values that are not durations": 1}


def test_a_folder_that_cannot_be_is_an_error(tmp_path: Path) -> None:
    """A file in place of the folder is an error of the constructor."""
    (tmp_path / "logs").write_text("")
    with pytest.raises(OutputError, match=r"log_dir .*logs cannot be written"):
        TimingLogger("logs")


def test_a_full_disk_ends_the_file_and_not_the_training(
    make_program: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first failed write is one warning; steps are still counted."""
    program = make_program(file_flush_interval=1)

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        for _ in range(3):
            program.vrt_step()
    assert program.logger.summary().steps == 3
    assert sum("timing_" in message and "No space left" in message for message in caplog.messages) == 1


def test_the_log_block_of_a_project_is_understood(tmp_path: Path) -> None:
    """``LOG:`` and ``SAVE_DIR`` decide the folder, the sinks and the intervals."""
    (tmp_path / "config.yaml").write_text(
        "SAVE_DIR: outputs/run_001\nMODEL: {name: vrt}\nLOG:\n  ENABLE_TIMING_LOG: true\n  TIMING_CONSOLE: false\n"
        "  TIMING_FILE: true\n  TIMING_CONSOLE_INTERVAL: 10\n  TIMING_FILE_INTERVAL: 1\n"
    )
    with TimingLogger.from_config("config.yaml") as logger:
        assert logger.log_file is not None
        assert logger.log_file.parent == tmp_path / "outputs/run_001/logs"
        logger.log_timing("forward", 1.0)
        logger.step()
        assert "Step 1" in logger.log_file.read_text(encoding="utf-8")


def test_the_log_block_can_switch_everything_off(tmp_path: Path) -> None:
    """``ENABLE_TIMING_LOG: false`` leaves a logger that does nothing."""
    with TimingLogger.from_config({"LOG": {"ENABLE_TIMING_LOG": False}, "SAVE_DIR": "outputs"}) as logger:
        logger.log_timing("forward", 1.0)
        logger.step()
        logger.print_summary()
    assert (logger.summary().steps, list(tmp_path.iterdir())) == (0, [])


def test_a_program_that_never_closes_loses_nothing(tmp_path: Path, forking_python: ForkingPython) -> None:
    """The interpreter's exit writes pending lines."""
    code = (
        "from autoprof.compat.timing_logger import TimingLogger; logger = TimingLogger('logs', enable_console=False); "
        "logger.log_timing('forward', 1.0); logger.step()"
    )
    subprocess.run([*forking_python.command, "-c", code], check=True, cwd=tmp_path)
    (log,) = (tmp_path / "logs").glob("timing_*.log")
    assert "Step 1" in log.read_text(encoding="utf-8")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_worker_writes_nothing(make_program: Make) -> None:
    """A loader's worker that logs and ends leaves the log to its parent."""
    program = make_program()
    child = os.fork()
    if not child:
        program.vrt_step()
        program.logger.close()
        os._exit(0)
    os.waitpid(child, 0)
    program.vrt_step()
    assert log_of(program).count("\nStep ") == 1
