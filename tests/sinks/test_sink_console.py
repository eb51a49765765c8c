"""The live display on a terminal and beside one."""

import io
import os
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from fake_terminal import TerminalStream
from rich.console import Console as RichConsole
from rich.live import Live
from sink_builders import Clock, frame_of, summary_of
from tqdm import tqdm

import autoprof
from autoprof.base.notes import Notes
from autoprof.base.summary import Summary
from autoprof.session.sink_group import SinkGroup
from autoprof.sinks._base import RunInfo
from autoprof.sinks._terminal import PinnedLines
from autoprof.sinks.console import ConsoleOptions, ConsoleSink


class Summaries:
    """The statistics of one frame; ``asked`` counts them."""

    def __init__(self) -> None:
        self.asked = 0
        self.fails = False

    def __call__(self) -> Summary:
        if self.fails:
            raise ZeroDivisionError
        self.asked += 1
        return summary_of([frame_of()])


class Console:
    """A console sink on a stream, with a count of the summaries that it is shown."""

    def __init__(
        self, stream: io.StringIO, clock: Clock, *, summaries: Summaries | None = None, **options: object
    ) -> None:
        self.clock = clock
        self.summaries = summaries or Summaries()
        self.notes = Notes()
        self.sink = ConsoleSink(ConsoleOptions(**options), RunInfo(None, 0, stream, clock))  # type: ignore[arg-type]
        self.outputs = SinkGroup([self.sink], self.summaries, self.notes)

    @property
    def asked(self) -> int:
        return self.summaries.asked

    def step(self, step: int, seconds: float = 1.0) -> None:
        self.clock.now += seconds
        self.outputs.write(frame_of(step=step))
        self.outputs.show()

    def close(self) -> None:
        self.outputs.close(summary_of([frame_of()]))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[TerminalStream]:
    """A terminal of 80 × 24 without colours."""
    stream = TerminalStream()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(
        os, "get_terminal_size", lambda _: os.terminal_size((stream.screen.columns, stream.screen.rows))
    )
    yield stream
    PinnedLines._holder = None


def _steps_of_lines(stream: io.StringIO) -> list[int]:
    return [int(line.split(" | ")[1].removeprefix("step ")) for line in stream.getvalue().splitlines()]


def test_a_pipe_gets_lines_that_become_rarer(clock: Clock) -> None:
    """Ten seconds apart at first, then a twentieth of the run's time, and ten minutes at most."""
    stream = io.StringIO()
    console = Console(stream, clock, every=10)
    for step in range(1, 40001):
        console.step(step)
    steps = _steps_of_lines(stream)
    assert steps[:3] == [10, 20, 30]
    gaps = [later - earlier for earlier, later in pairwise(steps)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == 600
    assert len(steps) < 200


@pytest.mark.parametrize(("value", "lines"), [("true", True), ("false", False)])
def test_a_ci_job_gets_lines(
    terminal: TerminalStream, clock: Clock, monkeypatch: pytest.MonkeyPatch, value: str, lines: bool
) -> None:
    """Some CI systems give a job a terminal; its log would show the control sequences."""
    monkeypatch.setenv("CI", value)
    console = Console(terminal, clock, every=1)
    console.step(1)
    console.close()
    assert ("\x1b" not in "".join(terminal.writes)) is lines


def test_a_program_whose_output_is_closed_gets_no_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """``python train.py >&-``: there is no standard output, which is no failure."""
    monkeypatch.setattr(sys, "stdout", None)
    model = torch.nn.Linear(4, 4)
    config = {"output": str(tmp_path), "sinks": {"console": {"every": 1}}, "sample": {"warmup": 0}, "step": "manual"}
    with autoprof.instrument(model, config) as session:
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
            session.step()
    assert not [note for note in session.summary().notes if "ConsoleSink" in note]


def test_a_program_in_the_background_draws_no_panel(
    terminal: TerminalStream, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After ``bg`` the terminal is the shell's: its screen is restored, and lines are printed."""
    console = Console(terminal, clock, every=10)
    for step in range(1, 11):
        console.step(step)
    assert _panel(terminal)
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp() + 1)
    console.step(11)
    assert not _panel(terminal)
    assert terminal.screen.bottom == 23
    assert "autoprof | step 11" in terminal.writes[-1]


def test_a_line_does_not_continue_a_bar(clock: Clock) -> None:
    """In a log that takes both, tqdm's bar has begun the line."""
    stream = io.StringIO()
    console = Console(stream, clock, every=1)
    with tqdm(total=2, file=stream) as bar:
        bar.update()
        console.step(1)
    assert "it/s]\nautoprof | step 1" in stream.getvalue().replace("?it/s]", "it/s]")


def test_beside_a_live_display_of_the_program_there_are_lines_above_it(
    terminal: TerminalStream, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rich has the whole terminal's height for its display; the panel is back at its end."""
    monkeypatch.setattr(sys, "stdout", terminal)
    console = Console(terminal, clock, every=1)
    console.step(1)
    screen = RichConsole(file=terminal, force_terminal=True, width=120, height=24, color_system=None)
    with Live("row\nrow", console=screen, auto_refresh=False, transient=True) as live:
        live.refresh()
        console.step(2)
        assert not _panel(terminal)
        assert any(line.startswith("autoprof | step 2 |") for line in terminal.screen.text)
    console.step(3, seconds=10)
    assert _panel(terminal)


def test_the_panel_is_at_the_bottom(terminal: TerminalStream, clock: Clock) -> None:
    """The panel takes the last rows, in one write, and the cursor stays where the program left it."""
    terminal.screen.feed("before\n")
    Console(terminal, clock, every=1).step(1)
    assert len(terminal.writes) == 1
    assert terminal.screen.text[0] == "before"
    assert terminal.screen.text[-1].startswith("└─ Total 1000.0 ms")
    assert (terminal.screen.x, terminal.screen.y) == (0, 1)


def test_prints_scroll_above_the_panel(terminal: TerminalStream, clock: Clock) -> None:
    """A program that prints more than the screen loses nothing and touches no line of the panel."""
    console = Console(terminal, clock, every=1)
    for step in range(1, 41):
        console.step(step)
        terminal.screen.feed(f"print {step} 损失\n")
    screen = terminal.screen
    height = sum(line.startswith(("┌", "│", "└")) for line in screen.text)
    assert screen.text[-height].startswith("┌─ autoprof · step 40")
    printed = [line for line in screen.scrolled + screen.text[:-height] if line]
    assert printed == [f"print {step} 损失" for step in range(1, 41)]


def test_drawing_is_throttled_by_steps_and_time(terminal: TerminalStream, clock: Clock) -> None:
    """Nothing is drawn, and no summary asked for, before N steps and the interval have passed."""
    console = Console(terminal, clock, every=10)
    for step in range(1, 81):
        console.step(step, seconds=0.01)  # 0.8 s in all
    assert console.asked == len(terminal.writes) == 2


def _panel(terminal: TerminalStream) -> list[str]:
    return [line for line in terminal.screen.text if line.startswith(("┌", "│", "└"))]


@pytest.mark.parametrize(("columns", "rows"), [(120, 40), (60, 20)])
def test_a_resize_moves_the_panel(terminal: TerminalStream, clock: Clock, columns: int, rows: int) -> None:
    """After a resize the next drawing is at the new bottom, and the old panel is gone."""
    console = Console(terminal, clock, every=1)
    console.step(1)
    terminal.screen.resize(columns, rows)
    console.step(2)
    screen = terminal.screen
    assert screen.text[-1].startswith("└─ Total")
    assert sum(line.startswith("┌─ autoprof") for line in screen.text) == 1
    assert sum(line.startswith("└─ Total") for line in screen.text) == 1


def test_a_terminal_that_is_too_small_gets_lines(terminal: TerminalStream, clock: Clock) -> None:
    """A panel that would leave the program no room is not drawn, and one that stood there is taken away."""
    console = Console(terminal, clock, every=1)
    console.step(1)
    terminal.screen.resize(80, 10)
    console.step(2)
    assert not any(line.startswith("┌─") for line in terminal.screen.text)
    assert "autoprof | step 2" in terminal.writes[-1]
    assert terminal.screen.bottom == 9


def test_close_gives_the_screen_back_and_leaves_the_report(terminal: TerminalStream, clock: Clock) -> None:
    """After ``close`` the whole screen scrolls again, the panel is gone and the report stays."""
    console = Console(terminal, clock, every=1)
    terminal.screen.feed("before\n")
    console.step(1)
    console.close()
    screen = terminal.screen
    assert (screen.top, screen.bottom) == (0, 23)
    seen = screen.scrolled + screen.text
    assert not any("┌" in line or "█░" in line for line in seen)
    assert "before" in seen
    assert "autoprof: 1 step (all recorded), host time" in seen


def test_a_second_panel_finds_the_bottom_taken(terminal: TerminalStream, clock: Clock) -> None:
    """Two sessions in one process do not fight for the same rows: the second prints lines."""
    first, second = Console(terminal, clock, every=1), Console(terminal, clock, every=1)
    first.step(1)
    second.step(1)
    assert terminal.writes[-1].startswith("\nautoprof | step 1")
    first.close()
    second.step(2, seconds=10)
    assert "┌─ autoprof · step 2" in terminal.writes[-1]


def test_a_reader_that_left_ends_the_drawings(terminal: TerminalStream, clock: Clock) -> None:
    """As ``head`` does: nothing is pinned any more, and nothing is said, for nobody reads it."""
    console = Console(terminal, clock, every=1)
    console.step(1)
    terminal.broken = True
    console.step(2)
    assert PinnedLines._holder is None
    console.step(3)
    console.close()
    assert (console.asked, console.notes.all) == (2, ())


def test_a_failed_summary_gives_the_screen_back(terminal: TerminalStream, clock: Clock) -> None:
    """When drawing fails for a reason of ours, the scroll region does not stay behind."""
    console = Console(terminal, clock, every=1)
    console.step(1)
    console.summaries.fails = True
    console.step(2)
    assert console.notes.all == ("ConsoleSink is off after ZeroDivisionError: ",)
    assert terminal.screen.bottom == 23
