"""The table of an always-on profiler: every row is measured and printed, and its figures are read rightly."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from benchmarks.always_on import __main__ as command
from benchmarks.always_on import paired, rows, training
from benchmarks.always_on.processes import Process
from benchmarks.always_on.rows import NUMBERS
from benchmarks.always_on.scale import TINY


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def _program(arguments: Sequence[str], _threads: int) -> Process:
    """Make a training here, or stand for a program that another test runs."""
    if arguments[:2] == ["-m", "benchmarks.always_on.training"]:
        training.main(arguments[2:])
    report = {"steps": 4, "rows": 3, "modules": 2, "overhead": 0.01, "cost": None, "stated": ["overhead 1 %"]}
    return Process(1.0, 1.0, report)


@pytest.mark.slow
def test_a_quick_run_prints_and_saves_every_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row has its limit and a figure; a limit may be missed, for so few steps say nothing."""
    monkeypatch.setattr(command, "QUICK", TINY)
    monkeypatch.setattr(rows, "run_program", _program)
    monkeypatch.setattr(rows, "run_on_terminal", _program)
    command.main(["--quick", "--output", str(tmp_path)])
    printed = capsys.readouterr().out
    results = json.loads((tmp_path / "always_on.json").read_text(encoding="utf-8"))
    assert {int(bound["subject"].split()[0]) for bound in results["bounds"]} == set(NUMBERS)
    assert all(bound["subject"] in printed and bound["measured"] in printed for bound in results["bounds"])
    assert results["machine"]["torch"] == torch.__version__
    assert command.render(results) in printed
    assert command.render(results) in (tmp_path / "always_on.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("is_shared", [True, False])
def test_recorded_and_bare_turns_alternate_in_an_open_session(is_shared: bool) -> None:
    """Each pair of turns has a figure of both sides by both clocks, of one model or of two."""
    found = paired.turns(
        lambda: paired.timed_chain(3, 0.1),
        {"sinks": {}},
        manual=False,
        is_shared=is_shared,
        turn_s=0.001,
        count=3,
        settling=2,
        progress=lambda line: None,
    )
    assert {clock: {side: len(times) for side, times in sides.items()} for clock, sides in found["pairs"].items()} == {
        "wall": {"own": 3, "bare": 3},
        "cpu": {"own": 3, "bare": 3},
    }
