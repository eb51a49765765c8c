"""``autoprof compare``: what is printed, drawn, and returned."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from compare_builders import MS, noise, save, train

from autoprof.base.summary import Stage, Summary
from autoprof.frontends.cli import main
from autoprof.frontends.compare import compare_runs, render_comparison
from autoprof.reports.text import cells

Runs = tuple[Path, Path, Path]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Return a run, its healthy twin, and one with twice the work in one part."""
    tmp_path = tmp_path_factory.mktemp("runs")
    return train(tmp_path, seed=1), train(tmp_path, seed=2), train(tmp_path, seed=3, work=2)


def status(*arguments: object) -> int:
    return main(["compare", *map(str, arguments)])


def test_a_limit_fails_a_proven_slow_down(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 1, and the rows are named; the twin passes, and so does the same run without a limit."""
    base, twin, slow = runs
    assert status(base, slow, "--fail-over", "5%") == 1
    assert "FAIL: slower by more than 5 %: step" in capsys.readouterr().out
    assert status(base, twin, "--fail-over", "5%") == 0
    assert "pass: nothing is proven to be slower by more than 5 %" in capsys.readouterr().out
    assert status(base, slow) == 0
    assert status(slow, base, "--fail-over", "5%") == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-run", "no-other"], "no-run: is not the folder of a run"),
        (["one"], "runs: does not exist here; allowed: the folder of a run"),
        (["--a", "one"], "two sides are needed; allowed: RUN_A RUN_B, RUN_A alone (B is the latest run), nothing"),
        (["one", "two", "--a", "three"], "two sides are needed"),
        (["one", "two", "--strict"], "autoprof compare: --strict is not an option; autoprof compare --help"),
    ],
)
def test_bad_input_is_status_2_and_one_message(
    arguments: Sequence[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Never 1, which means slower, and never a traceback."""
    assert status(*arguments, "--fail-over", "5%") == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said


def test_a_limit_that_is_no_number_is_an_error_of_usage(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    """``5%`` and ``0.05`` are; the message says so."""
    with pytest.raises(SystemExit, match="2"):
        status(*runs[:2], "--fail-over", "five")
    assert "'five' is not a fraction; allowed: a number such as 5% or 0.05" in capsys.readouterr().err
    assert status(runs[0], runs[2], "--fail-over", "0.05") == 1


def test_json_is_the_comparison(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    """``--json`` prints all of it, and nothing else."""
    assert status(runs[0], runs[2], "--json", "--fail-over", "5%") == 1
    data = json.loads(capsys.readouterr().out)
    mixer = next(one for one in data["rows"] if (one["name"], one["phase"]) == ("Net/mixer", "forward"))
    assert mixer["verdict"] == "slower"
    assert mixer["over"] is True
    assert mixer["low"] < mixer["ratio"] < mixer["high"]


def test_without_runs_the_two_latest_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The later one is B; with one run, that one is A."""
    columns = {("Net", "forward"): [5.0] * 20}
    for day in (1, 3, 2):
        save(tmp_path / "runs", columns, name=f"day{day}", start=f"2026-01-0{day}T00:00:00+00:00")
    assert main(["compare", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [Path(found[side][0]["path"]).name for side in "ab"] == ["day2", "day3"]
    assert main(["compare", "runs/day1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [Path(found[side][0]["path"]).name for side in "ab"] == ["day1", "day3"]


def test_long_commands_are_shown_where_they_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two commands of 4,000 characters that differ in one word: that word is shown, whole."""
    start = "python train.py " + " ".join(f"--option-{at} value-{at}" for at in range(150))
    runs = []
    for rate in ("0.1", "0.00012345"):
        command = f"{start} --lr {rate} --out a{'b' * 100}"
        runs.append(str(save(tmp_path, {("Net", "forward"): [5.0] * 20}, command=command)))
    assert main(["compare", *runs]) == 0
    shown = capsys.readouterr().out
    assert "command: --lr 0.1 -> --lr 0.00012345" in shown
    assert "--option-3 " not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_time_outside_of_steps_is_a_line_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that saves after each step takes longer from step to step, though its steps are as long."""

    def at(pause_ms: float) -> Any:
        length = round((5 + 1 + pause_ms) * MS)
        return lambda step, fields: {**fields, "start_unix_ns": step * length}

    runs = [save(tmp_path, {("Net", "forward"): [5.0] * 40}, change=at(pause)) for pause in (3.0, 0.0)]
    assert main(["compare", *map(str, runs), "--json"]) == 0
    assert "wall time" not in capsys.readouterr().out  # nothing was excluded: another program may have stopped this one
    saved = Summary(stages=(Stage("torch.save", calls=40, total_ns=120 * MS, steps=40),))
    (runs[0] / "summary.json").write_text(json.dumps(saved.to_dict()))
    assert main(["compare", *map(str, runs), "--json"]) == 0
    whole = {one["name"]: one for one in json.loads(capsys.readouterr().out)["whole"]}
    assert whole["step"]["verdict"] == "same"
    assert whole["wall time"]["verdict"] == "faster"
    assert whole["wall time"]["a"] == pytest.approx(9 * MS)


@pytest.mark.parametrize("step_ms", [0.01, 9.99, 9_999.9, 20_123.4, 3_599_999, 7_200_000])
@pytest.mark.parametrize("width", [80, 200])
def test_columns_hold_at_any_length_of_a_step(tmp_path: Path, width: int, step_ms: float) -> None:
    """From microseconds to hours a number has a blank before it, and no line is wider than the terminal."""
    sides = [save(tmp_path, {("A", "forward"): step_ms * noise(40, seed, spread=0.001)}) for seed in (1, 2)]
    lines = render_comparison(compare_runs(*sides), width=width)
    rows = [line for line in lines if line.startswith(("step", "mean step", "  forward"))]
    assert len(rows) >= 3
    unit = r"<?[\d.]+ (?:ms|s|h)"
    for row in rows:
        assert re.search(rf"\w +{unit} +{unit} +\S+ % +\[.*\]  \w+$", row), row
    assert len({row.index("%") for row in rows}) == 1
    assert max(map(cells, lines)) <= width
