"""The live panel beside what programs show themselves: bars of tqdm and rich, prints of threads, workers and C."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_terminal import Screen
from forking_python import ForkingPython
from real_terminal import output_on_terminal, screen_of

_BEFORE = """
import ctypes, os, subprocess, sys, threading
from itertools import count
sys.path.insert(0, sys.argv[1])
from autoprof.sinks._base import RunInfo
from autoprof.sinks.console import ConsoleOptions, ConsoleSink
from sink_builders import frame_of, summary_of
STEPS = 60
sink = ConsoleSink(ConsoleOptions(every=1), RunInfo(None, 0, sys.stdout, clock=count().__next__))
def train(step):
    sink.write(frame_of(step=step))
    if sink.due():
        sink.show(summary_of([frame_of()]), step)
"""
_AFTER = """
sink.close(summary_of([frame_of()]))
print("the program goes on", flush=True)
"""

NESTED = """
from tqdm import tqdm
for epoch in tqdm(range(3), desc="epochs", mininterval=0):
    for step in tqdm(range(20), desc="steps", leave=False, mininterval=0):
        train(step)
        if step % 10 == 5:
            tqdm.write(f"line {epoch} {step}")
"""
RICH = """
from rich.console import Console
from rich.progress import Progress
with Progress(console=Console(force_terminal=True, color_system=None), auto_refresh=False) as progress:
    outer, inner = (progress.add_task(name, total=STEPS) for name in ("outer", "inner"))
    for step in range(STEPS):
        train(step)
        progress.advance(outer)
        progress.advance(inner)
        progress.refresh()
        if step % 10 == 5:
            print("line", step)
"""
PRINTS = """
for step in range(STEPS):
    train(step)
    if step % 10 == 1:
        os.write(1, f"line {step} by os.write\\n".encode())
    if step % 10 == 3:
        printing = threading.Thread(target=print, args=(f"line {step} of a thread",))
        printing.start()
        printing.join()
    if step % 10 == 5:
        subprocess.run([sys.executable, "-Ic", f"print('line {step} of a process')"], check=True)
    if step % 10 == 6:
        print(f"line {step} begun, ", end="")
    if step % 10 == 8:
        print(f"ended at {step}")
    if step % 20 == 9:
        print(f"line {step} \\x1b[31m损失 🚀\\x1b[0m", "x" * 150)
"""


Run = Callable[..., str]


@pytest.fixture
def run(forking_python: ForkingPython, tmp_path: Path) -> Run:
    """Run a program on a terminal and return its output."""

    def run_program(program: str, **environment: str) -> str:
        path = tmp_path / "train.py"
        path.write_text(_BEFORE + program, encoding="utf-8")
        return output_on_terminal(*forking_python.command, str(path), str(Path(__file__).parent), **environment)

    return run_program


def _screen(output: str) -> tuple[Screen, list[str]]:
    """Return the screen after an output, and all lines that were ever on it and stayed."""
    screen = screen_of(output)
    return screen, [line for line in screen.scrolled + screen.text if line]


def _assert_whole(screen: Screen, seen: list[str]) -> None:
    assert (screen.top, screen.bottom) == (0, 29)
    assert seen[-1] == "the program goes on"
    assert sum("autoprof: 1 step" in line for line in seen) == 1
    assert not any(line.startswith(("┌", "│", "└")) for line in seen)


def _lines(seen: list[str]) -> list[str]:
    return [line for line in seen if line.startswith("line")]


def test_nested_bars_of_tqdm(run: Run) -> None:
    """The inner bar goes, the outer one stays once, each written line is there once."""
    screen, seen = _screen(run(NESTED + _AFTER))
    _assert_whole(screen, seen)
    assert _lines(seen) == [f"line {epoch} {step}" for epoch in range(3) for step in (5, 15)]
    assert [line[:13] for line in seen if line.startswith(("epochs", "steps"))] == ["epochs: 100%|"]


def test_progress_of_rich(run: Run) -> None:
    """rich moves up by its rows at each refresh, and prints above them."""
    screen, seen = _screen(run(RICH + _AFTER))
    _assert_whole(screen, seen)
    assert _lines(seen) == [f"line {step}" for step in range(5, 60, 10)]
    bars = [line for line in seen if line.startswith(("outer", "inner"))]
    assert [re.sub(r"\W+", " ", line)[:10] for line in bars] == ["outer 100 ", "inner 100 "]


def test_prints_of_threads_processes_and_c(run: Run) -> None:
    """Each text comes above the panel, once; half lines are completed, and wide characters keep their cells."""
    screen, seen = _screen(run(PRINTS + _AFTER))
    _assert_whole(screen, seen)
    expected = []
    for ten in range(0, 60, 10):
        expected += [f"line {ten + 1} by os.write", f"line {ten + 3} of a thread", f"line {ten + 5} of a process"]
        expected += [f"line {ten + 6} begun, ended at {ten + 8}"]
        expected += [f"line {ten + 9} 损失 🚀 " + "x" * (85 - (ten > 0))] if ten % 20 == 0 else []
    assert _lines(seen) == expected
    assert [line for line in seen if line.startswith("x")] == ["x" * 65, "x" * 66, "x" * 66]


def test_a_program_that_dies_gets_its_screen_back(run: Run) -> None:
    """Without a ``close`` the interpreter's exit still resets the scroll region and takes the panel away."""
    screen, seen = _screen(run("for step in range(30): train(step)\nsys.exit('the program died')"))
    assert (screen.top, screen.bottom) == (0, 29)
    assert not any("┌" in line for line in screen.text)
    assert any("the program died" in line for line in seen)
