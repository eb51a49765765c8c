"""The exports of timings: CSV, JSON, a picture, the verdict, a table of all ranks."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable
from typing import Any

import pytest
from compat_builders import MS, Program

from autoprof.compat.stragglers import render_stragglers
from autoprof.compat.timing_export import (
    compare_ranks,
)
from autoprof.compat.timing_logger import TimingLogger
from autoprof.testing import FakeClock

Make = Callable[..., Program]


def test_csv_has_a_line_for_each_name_of_each_step(make_program: Make) -> None:
    """Exact milliseconds, calls, percentages of the step; no column is ever empty."""
    program = make_program()
    program.vrt_step()
    program.vrt_step()
    with program.logger.export_csv().open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10
    assert all(all(row.values()) for row in rows)
    stage8 = next(row for row in rows if row["name"] == "VRT处理/Stage8")
    assert stage8 == {
        "step": "1",
        "name": "VRT处理/Stage8",
        "ms": "965.000000",
        "calls": "1",
        "percent": "53.454",
        "total_ms": "1805.280000",
    }


def test_a_name_in_the_table_is_no_formula(make_program: Make) -> None:
    """A spreadsheet would run it; an apostrophe makes it text."""
    program = make_program()
    program.take("=1+2", 965)
    program.logger.step()
    assert "1,'=1+2,965" in program.logger.export_csv().read_text(encoding="utf-8")


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
    """Each rank writes files of its own; together they show the slow rank of each name."""
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
    names = compare_ranks("logs")
    forward, backward = names
    assert (forward.name, forward.slowest, forward.straggles) == ("forward", 2, True)
    assert {rank: one.mean_ns for rank, one in forward.ranks.items()} == {
        rank: (50 if rank == 2 else 40) * MS for rank in range(4)
    }
    assert not backward.straggles
    assert "straggler: rank 2 takes 25 % longer in forward than the other ranks" in render_stragglers(names)
