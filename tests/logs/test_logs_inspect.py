"""``autoprof inspect``: the table, the figure, the errors."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from autoprof.cli import main

FIXTURES = Path(__file__).parent / "fixtures"


def test_the_report_has_the_facts_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows, steps, loss, throughput with its P10, step time, memory, and the lines that were skipped."""
    assert main(["inspect", str(FIXTURES / "megatron.log")]) == 0
    out = capsys.readouterr().out
    for word in (
        "20 rows, steps 10 to 200",
        "loss       first",
        "min",
        "P10",
        "step time  median",
        "memory     largest 5.53 GiB",
        "7 lines skipped",
    ):
        assert word in out


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """In 80 and in 200 columns; even in 40 only the facts, which cannot be shorter, stand out."""
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["inspect", *map(str, sorted(FIXTURES.glob("*.log")))]) == 0
    longest = max(map(len, capsys.readouterr().out.splitlines()))
    assert longest <= max(width, 75)


def test_a_pipe_gets_plain_text() -> None:
    """Piped, with an encoding that has no Chinese, the table is text without colours."""
    command = [sys.executable, "-m", "autoprof", "inspect", str(FIXTURES / "seed.jsonl")]
    found = subprocess.run(
        command, capture_output=True, check=True, env={"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path)}
    )
    assert b"\x1b" not in found.stdout
    assert b"120 rows" in found.stdout
    assert found.stderr == b""


def test_the_figure_and_the_table_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``-o`` and ``--csv`` write files, and the report names the plots that are missing."""
    figure, table = tmp_path / "a.svg", tmp_path / "a.csv"
    arguments = [
        "inspect",
        str(FIXTURES / "nanogpt.log"),
        "-o",
        str(figure),
        "--x",
        "time",
        "--smooth",
        "3",
        "--csv",
        str(table),
    ]
    assert main(arguments) == 0
    assert figure.stat().st_size > 1000
    assert table.read_text().splitlines()[0].startswith("run,step")
    assert "Not in the log, so not drawn: throughput" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.log"], "no such file"),
        ([str(FIXTURES / "README.md")], "no training record"),
        ([str(FIXTURES / "seed.jsonl"), "--pattern", "("], "not a regular expression"),
        ([str(FIXTURES / "seed.jsonl"), "--pattern", "(?P<loss>never)"], "no line matches"),
        ([str(FIXTURES / "seed.jsonl"), "--smooth", "0"], "1 or more"),
    ],
)
def test_a_wrong_input_is_one_message_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each error is one message on the error stream, without a traceback."""
    assert main(["inspect", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_run_of_autoprof_is_read_by_its_folder(capsys: pytest.CaptureFixture[str]) -> None:
    """The folder of a run gives its records once, not the readable log as well."""
    assert main(["inspect", str(FIXTURES / "autoprof_run")]) == 0
    out = capsys.readouterr().out
    assert out.count("12 rows") == 1
    assert "as autoprof" in out


def test_a_figure_that_cannot_be_drawn_is_an_error_before_the_logs_are_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A million lines are not read for a misspelt format."""
    monkeypatch.setattr("autoprof.logs.load_logs", lambda *_, **__: pytest.fail("the logs were read"))
    assert main(["inspect", "train.log", "-o", "x.gif"]) == 2
    assert "is not a format" in capsys.readouterr().err


def test_a_plot_without_a_file_is_written_to_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--plot loss`` asks for a figure."""
    monkeypatch.chdir(tmp_path)
    Path("train.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n')
    assert main(["inspect", "train.jsonl", "--plot", "loss"]) == 0
    assert "figure: training_metrics.png" in capsys.readouterr().out
    assert Path("training_metrics.png").exists()


def test_a_table_has_no_formulas(tmp_path: Path) -> None:
    """Names and texts of a log that a spreadsheet would run get an apostrophe; numbers stay as they are."""
    log, table = tmp_path / "log.jsonl", tmp_path / "table.csv"
    log.write_text("".join(f'{{"step": {step}, "loss": -0.5, "=cmd": {step}}}\n' for step in range(1, 4)))
    assert main(["inspect", str(log), "--csv", str(table)]) == 0
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "@", "|"))]
    assert "-0.5" in rows[1]
