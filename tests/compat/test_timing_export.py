"""The exports of timings: CSV, JSON, a picture, the verdict, a table of all ranks."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from compat_builders import MS, Program

from autoprof.compat.timing_logger import TimingLogger
from autoprof.logs import load_logs
from autoprof.testing import FakeClock

Make = Callable[..., Program]


def test_csv_and_json_have_a_row_for_each_step(make_program: Make) -> None:
    """Milliseconds by name and the time of the step; a name is text, also for a spreadsheet."""
    program = make_program()
    program.vrt_step()
    program.take("=1+2", 965)
    program.logger.step()
    with program.logger.export_csv().open(encoding="utf-8", newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["step"], first["VRT处理/Stage8 (ms)"], first["step_time_s"]) == ("1", "965.0", "1.80528")
    assert second["'=1+2 (ms)"] == "965.0"
    records = json.loads(program.logger.export_json().read_text(encoding="utf-8"))
    assert [record["Spike编码器 (ms)"] for record in records] == [5.26, None]


def test_a_picture_is_drawn_in_the_format_of_its_ending(make_program: Make) -> None:
    """PNG beside the log; SVG and PDF for papers."""
    program = make_program()
    for _ in range(5):
        program.vrt_step()
    assert program.logger.plot().read_bytes().startswith(b"\x89PNG")
    assert program.logger.plot("out.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert program.logger.plot("out.pdf").read_bytes().startswith(b"%PDF")


def test_a_name_that_dominates_is_a_bottleneck(make_program: Make, stream: Any) -> None:
    """A name with most of the step is found, named and printed with advice."""
    program = make_program()
    scatter = random.Random(0)
    for _ in range(30):
        program.take("VRT", 800 + scatter.random())
        program.take("Spike", 100 + scatter.random())
        program.logger.step()
    (finding,) = program.logger.bottlenecks()
    assert (finding.rule, finding.name) == ("hot-module", "VRT")
    program.logger.print_summary()
    assert "Verdict   [warning] hot-module: VRT" in stream.getvalue()


def test_long_steps_are_a_bottleneck_with_their_cause(make_program: Make) -> None:
    """Each tenth step waits for the loader: jitter, and its cause is the name that took so long."""
    program = make_program()
    for step in range(50):
        program.take("forward", 100)
        program.take("data", 900 if step % 10 == 9 else 60)
        program.logger.step()
    (finding,) = program.logger.bottlenecks()
    assert (finding.rule, finding.name) == ("jitter", "data")


def test_logs_of_several_processes_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank writes a log of its own; read together they show the slow rank of a name."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        clock = FakeClock()
        with TimingLogger("logs", enable_console=False, all_ranks=True, clock=clock) as logger:
            for _ in range(5):
                for name, ms in (("forward", 50 if rank == 2 else 40), ("backward", 90)):
                    clock.advance(ms * MS)
                    logger.log_timing(name, ms)
                logger.step()
        assert logger.log_file is not None
        assert logger.log_file.name.endswith(f"_rank{rank}.log" if rank else ".log")
    frame = load_logs("logs")
    assert frame.groupby("rank")["forward (ms)"].mean().to_dict() == {0: 40, 1: 40, 2: 50, 3: 40}
