"""``autoprof inspect``: the report, the figure, the table, pipes, columns of unknown names, the errors."""

import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autoprof.frontends.cli import main
from autoprof.logs import load_logs, plot_metrics

FIXTURES = Path(__file__).parent / "fixtures"


def test_the_report_has_the_facts_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows, steps, loss, step time, memory, and the lines that were skipped."""
    assert main(["inspect", str(FIXTURES / "megatron.log")]) == 0
    out = capsys.readouterr().out
    for word in (
        "20 rows, steps 10 to 200",
        "  loss ",
        "  step_time_s (s) ",
        "  memory (GiB) ",
        " 5.531",
        "7 skipped",
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


def test_the_figure_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``-o`` writes a file, and the report names the plots that are missing."""
    figure = tmp_path / "a.svg"
    arguments = [
        "inspect",
        str(FIXTURES / "nanogpt.log"),
        "-o",
        str(figure),
        "--smooth",
        "3",
    ]
    assert main(arguments) == 0
    assert figure.stat().st_size > 1000
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


LINES = "".join(f"step {at} loss: {5 - at / 100:.4f}\n" for at in range(1, 101)).encode()


@contextmanager
def standard_input(content: bytes) -> Iterator[None]:
    """Make a pipe with this content the standard input of the process."""
    reading, writing = os.pipe()
    before = os.dup(0)
    os.dup2(reading, 0)
    thread = threading.Thread(target=_fill, args=(writing, content))
    thread.start()
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(reading)
        thread.join()


def _fill(descriptor: int, content: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


@pytest.mark.parametrize("content", [LINES, gzip.compress(LINES)], ids=["text", "gzip"])
def test_standard_input_is_read(content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """``cat train.log | autoprof inspect -`` has all records, also of a compressed log."""
    with standard_input(content):
        assert main(["inspect", "-"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("standard input\n  100 rows, steps 1 to 100\n")
    assert "read standard input as text: 100 lines, 100 records" in out


def test_a_pipe_in_a_folder_is_not_waited_for(tmp_path: Path) -> None:
    """A folder and a pattern give files only: a FIFO that nobody writes to would block for ever."""
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "train.log").write_bytes(LINES)
    assert len(load_logs(tmp_path)) == 100
    assert len(load_logs(str(tmp_path / "*.log"))) == 100


_ROWS = [(at, at % 7 - 2.5, 100.0 - at) for at in range(1, 31)]
WITH_STEPS = {
    "table": "step,foo,bar\n" + "".join(f"{at},{foo},{bar}\n" for at, foo, bar in _ROWS),
    "table after another line": "# run 7\nstep;foo;bar\n" + "".join(f"{at};{foo};{bar}\n" for at, foo, bar in _ROWS),
    "JSON lines": "".join(json.dumps({"step": at, "foo": foo, "bar": bar}) + "\n" for at, foo, bar in _ROWS),
    "key=value": "start\n" + "".join(f"step={at} foo={foo} bar={bar}\n" for at, foo, bar in _ROWS),
    "key: value": "".join(f"step: {at}, foo: {foo}, bar: {bar}\n" for at, foo, bar in _ROWS),
}


def _write(folder: Path, text: str, name: str = "log") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("form", WITH_STEPS)
def test_numbers_beside_a_step_are_summarised_and_drawn(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Minimum, median, maximum and last value; a plot for each column; status 0."""
    log, figure = _write(tmp_path, WITH_STEPS[form]), tmp_path / "a.svg"
    assert main(["inspect", log, "-o", str(figure)]) == 0
    out = capsys.readouterr().out
    assert "30 rows, steps 1 to 30" in out
    assert [line.split() for line in out.splitlines() if line.startswith(("  column", "  foo", "  bar"))] == [
        ["column", "first", "last", "min", "median", "max"], ["foo", "-1.5", "-0.5", "-2.5", "0.5", "3.5"],
        ["bar", "99", "70", "70", "84.5", "99"],
    ]  # fmt: skip
    assert "Not in the log" not in out
    titles = [axes.get_title(loc="left") for axes in plot_metrics(load_logs(log), None).axes]
    assert titles == ["foo", "bar"]


def test_a_figure_has_a_limited_number_of_them(tmp_path: Path) -> None:
    """Six columns that vary; the others are named, and drawn on request."""
    names = [f"m{at}" for at in range(30)]
    rows = "".join(f"{at},1,{','.join(str(at * (n + 1)) for n in range(29))}\n" for at in range(1, 9))
    df = load_logs(_write(tmp_path, f"step,{','.join(names)}\n{rows}"))
    figure = plot_metrics(df, None)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["m1", "m2", "m3", "m4", "m5", "m6"]
    (note,) = figure.notes  # type: ignore[attr-defined]
    assert note.startswith("Not drawn (--plot NAME draws one): m7, m8,")
    chosen = plot_metrics(df, None, plots=["m0", "m29"])
    assert [axes.get_title(loc="left") for axes in chosen.axes] == ["m0", "m29"]


def test_a_second_key_of_a_known_column_is_not_unknown(tmp_path: Path) -> None:
    """``learning_rate`` beside ``lr`` has no plot and no row of its own."""
    lines = "".join(f'{{"step": {at}, "loss": {at}, "lr": 0.1, "learning_rate": 0.1}}\n' for at in range(1, 9))
    figure = plot_metrics(load_logs(_write(tmp_path, lines)), None)
    assert [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")] == ["Loss"]
