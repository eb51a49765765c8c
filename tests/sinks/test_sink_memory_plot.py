"""The memory picture: its history, its drawing, and the process that draws meanwhile."""

import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from sink_builders import Clock, frame_of, summary_of

from autoprof.base.storage.runs import RunFolder
from autoprof.base.summary import MemoryRow, Summary
from autoprof.base.units import NS_PER_S
from autoprof.reports.figures import encode_figure
from autoprof.reports.memory import MemoryHistory, memory_figure
from autoprof.session.account import Part
from autoprof.sinks._base import RunInfo
from autoprof.sinks.memory_plot import POINTS, History, MemoryPlotOptions, MemoryPlotSink
from tests.accounts import FakeRun

PNG = b"\x89PNG\r\n\x1a\n"
MIB = 1 << 20


@pytest.mark.parametrize("steps", [POINTS + 1, 5 * POINTS + 3, 40 * POINTS])
def test_a_long_run_keeps_the_maxima_in_bounded_space(steps: int) -> None:
    """Whatever the number of steps, there are at most 2048 points and no peak is lost."""
    kept = History()
    for step in range(1, steps + 1):
        kept.add(step, {"rss_bytes": 9999 if step == steps // 2 else step % 7})
    snapshot = kept.snapshot()
    assert POINTS // 2 <= len(snapshot.steps) <= POINTS
    assert snapshot.series["rss_bytes"].max() == 9999
    assert snapshot.steps[-1] == steps
    assert len(snapshot.steps) == -(-steps // snapshot.stride)


def figure_of(name: str) -> Figure:
    """Return the figure of a run with this name."""
    steps = np.arange(1, 4)
    summary = replace(Summary.empty(), memory_table=(MemoryRow(name, MIB),))
    return memory_figure(MemoryHistory(steps, {"rss_bytes": steps * MIB}), summary)


def test_a_name_in_any_script_is_drawn_without_a_warning() -> None:
    """A character that no font of the machine has is an empty box."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encode_figure(figure_of("Spike时间自注意力/前向 \U0001f525"))


def test_the_users_style_is_neither_used_nor_changed() -> None:
    """matplotlib's settings belong to the program: drawing does not change them."""
    import matplotlib as mpl

    with mpl.rc_context({"figure.facecolor": "black"}):
        figure = figure_of("A")
        assert mpl.rcParams["figure.facecolor"] == "black"
    assert figure.get_facecolor()[:3] == (1.0, 1.0, 1.0)


def run_of(tmp_path: Path, clock: Clock, summary: Summary | None = None) -> RunInfo:
    return RunInfo(RunFolder.create(tmp_path), 0, sys.stdout, clock)


def test_the_picture_is_drawn_at_the_end(tmp_path: Path, clock: Clock) -> None:
    """``close`` leaves ``memory.png`` in the run's folder, and nothing else."""
    run = run_of(tmp_path, clock)
    sink = MemoryPlotSink(MemoryPlotOptions(), run)
    sink.write(frame_of(memory={"rss_bytes": 5 * MIB}))
    sink.close(summary_of([]))
    assert run.folder is not None
    assert (run.folder.path / "memory.png").read_bytes().startswith(PNG)
    assert sorted(path.name for path in run.folder.path.rglob("*")) == ["memory.png", "rank0", "run.json"]


@pytest.mark.parametrize(("budget", "seconds", "drawn"), [(0.01, 99, 0), (0.01, 101, 1), (0.1, 11, 1), (None, 1, 1)])
def test_a_picture_that_no_configuration_names_is_drawn_where_the_budget_covers_it(
    tmp_path: Path, clock: Clock, budget: float | None, seconds: int, drawn: int
) -> None:
    """Drawing takes a second of processor time."""
    whole = FakeRun(budget)
    run = replace(run_of(tmp_path, clock), figures=whole.account.part(Part.FIGURES))
    sink = MemoryPlotSink(MemoryPlotOptions(), run)
    sink.write(frame_of(memory={"rss_bytes": 5 * MIB}))
    whole.now_ns = seconds * NS_PER_S
    sink.close(summary_of([]))
    assert len(list(tmp_path.rglob("memory.png"))) == drawn
