"""The table of timings, the verdict, a table of all ranks."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from compat_builders import MS, Program

from autoprof.compat.timing_logger import TimingLogger
from autoprof.logs import load_logs, plot_metrics
from autoprof.testing import FakeClock

Make = Callable[..., Program]


def test_the_table_has_a_row_for_each_step_and_is_drawn(make_program: Make) -> None:
    """Milliseconds by name and the time of the step; the names are curves of the figure."""
    program = make_program()
    program.vrt_step()
    program.take("backward", 965)
    program.logger.step()
    program.logger.close()
    assert program.logger.log_file is not None
    table = load_logs(program.logger.log_file)
    assert list(table["VRT处理/Stage8 (ms)"].fillna(0)) == [965.0, 0]
    assert list(table["step_time_s"]) == [1.80528, 0.965]
    titles = [axes.get_title(loc="left") for axes in plot_metrics(table, "out.svg").axes]
    assert titles == ["Step time", "Time by name"]


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
