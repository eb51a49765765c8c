"""``autoprof inspect --follow``: logs that grow, are cut, replaced, or come through a pipe."""

from __future__ import annotations

import io
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autoprof.cli import main
from autoprof.errors import AutoprofError
from autoprof.logs.follow import FollowedLogs, LogFollower
from autoprof.logs.inputs import PipeCopies


def _lines(first: int, last: int) -> str:
    return "".join(f"step {at} loss: {5 - at / 100:.4f}\n" for at in range(first, last + 1))


def _readings(log: Path | str, *changes: Callable[[], object]) -> Iterator[FollowedLogs]:
    """Follow a log; each pause makes the next change, and after the last one Ctrl-C is pressed."""
    left = list(changes)

    def sleep(_seconds: float) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    try:
        yield from LogFollower(lambda: str(log), options={}, sleep=sleep).readings()
    except KeyboardInterrupt:
        return


def _rows(found: FollowedLogs) -> int | None:
    return None if found.table is None else len(found.table)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(_lines(1, 10))
    return path


def _append(log: Path, text: str) -> Callable[[], object]:
    return lambda: log.write_text(log.read_text() + text)


def test_a_log_is_read_again_only_after_a_change(log: Path) -> None:
    """Two pauses without a change give no reading."""
    found = list(_readings(log, _append(log, _lines(11, 12)), lambda: None, lambda: None, _append(log, _lines(13, 20))))
    assert [_rows(one) for one in found] == [10, 12, 20]


def test_a_log_without_a_record_is_waited_for(log: Path) -> None:
    """A program that starts has printed only its settings; an empty file is a log, too."""
    log.write_text("")
    found = list(_readings(log, _append(log, "starting\n"), _append(log, _lines(1, 5))))
    assert [_rows(one) for one in found] == [None, None, 5]
    assert found[0].notes == ("no training record so far",)
    assert found[2].notes == ()


def test_a_log_that_is_cut_is_read_from_its_new_beginning(log: Path) -> None:
    """``> train.log`` of a restarted job, with a note."""
    found = list(_readings(log, lambda: log.write_text(_lines(1, 3))))
    assert [_rows(one) for one in found] == [10, 3]
    assert "was replaced or cut: earlier records are not shown" in found[1].notes[0]


def test_a_log_that_is_rotated_is_followed_by_its_name(log: Path) -> None:
    """The log is moved, is missing for a moment, and a longer one has its name."""
    old = log.with_suffix(".1")
    found = list(_readings(log, lambda: log.rename(old), lambda: None, lambda: log.write_text(_lines(11, 40))))
    assert [_rows(one) for one in found] == [10, 30]
    assert "was replaced or cut" in found[1].notes[0]


def test_a_record_that_is_half_written_is_not_read(log: Path) -> None:
    """The value appears with the rest of its line."""
    half, rest = "step 11 loss: 4.", "8900\n"
    found = list(_readings(log, _append(log, half), _append(log, rest)))
    losses = [one.table["loss"].dropna().iloc[-1] for one in found if one.table is not None]
    assert losses == [4.9, 4.9, 4.89]


def test_a_path_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    """A misspelt name is not waited for."""
    with pytest.raises(AutoprofError, match="no such file"):
        list(_readings(tmp_path / "trian.log"))


def test_a_pipe_is_followed_to_its_end(tmp_path: Path) -> None:
    """``tail -f train.log | autoprof inspect - --follow`` shows records as they come, and ends with the pipe."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer: list[int] = []
    opener = threading.Thread(target=lambda: writer.append(os.open(pipe, os.O_WRONLY)))
    opener.start()
    written = [10]

    def sleep(_seconds: float) -> None:
        opener.join()
        if written[0] < 30:
            written[0] += 10
            os.write(writer[0], _lines(written[0] - 9, written[0]).encode())
        elif writer:
            os.close(writer.pop())
        threading.Event().wait(0.002)  # until the copying thread has seen it

    seen = [_rows(one) for one in LogFollower(lambda: pipe, options={}, sleep=sleep).readings()]
    assert seen[-1] == 20
    assert seen == sorted(seen, key=lambda rows: rows or 0)


def test_the_copy_of_a_pipe_that_is_followed_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing stays in the temporary folder after Ctrl-C."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    reading, writing = os.pipe()
    try:
        with PipeCopies(growing=True) as pipes:
            copy = pipes.source_of(Path(f"/dev/fd/{reading}"))
            assert copy.exists()
            assert not pipes.have_ended([Path(f"/dev/fd/{reading}")])
    finally:
        os.close(writing)
        os.close(reading)
    assert list(tmp_path.iterdir()) == []


def _press_ctrl_c(monkeypatch: pytest.MonkeyPatch, *changes: Callable[[], object]) -> None:
    left = list(changes)

    def sleep(_seconds: float) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    monkeypatch.setattr(LogFollower.__init__, "__kwdefaults__", {"interval_s": 0.0, "sleep": sleep})


def test_on_a_pipe_each_change_is_a_line(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The latest step and values, with the time; Ctrl-C ends with status 130."""
    _press_ctrl_c(monkeypatch, _append(log, "step 11 loss: 4.8\n"))
    assert main(["inspect", str(log), "--follow"]) == 130
    lines = capsys.readouterr().out.splitlines()
    assert [line[8:] for line in lines] == ["  step 10  loss 4.9", "  step 11  loss 4.8"]
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in lines)


def test_json_of_a_log_that_grows_is_an_object_per_line(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For programs: each line is complete."""
    _press_ctrl_c(monkeypatch, _append(log, _lines(11, 12)))
    assert main(["inspect", str(log), "-f", "--json"]) == 130
    assert [json.loads(line)["rows"] for line in capsys.readouterr().out.splitlines()] == [10, 12]


def test_the_figure_is_drawn_again(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``-o`` writes the figure after each change; with a single value there is none yet."""
    figure = tmp_path / "a.png"
    log.write_text("")
    sizes: list[int] = []

    def note_size() -> None:
        sizes.append(figure.stat().st_size if figure.exists() else 0)

    def write(text: str) -> Callable[[], object]:
        return lambda: (note_size(), log.write_text(text))

    _press_ctrl_c(monkeypatch, write(_lines(1, 3)), write(_lines(1, 6)), note_size)
    assert main(["inspect", str(log), "-f", "-o", str(figure)]) == 130
    assert sizes[0] == 0
    assert sizes[1] > 0
    assert sizes[2] != sizes[1]


class _Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (60, 8)])
def test_a_terminal_shows_the_report_in_place(
    log: Path, monkeypatch: pytest.MonkeyPatch, columns: int, rows: int
) -> None:
    """No line is wider and no reading higher than the terminal, so that the next one is drawn over it."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(rows))
    monkeypatch.setenv("TERM", "xterm-256color")
    screen = _Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    _press_ctrl_c(monkeypatch, _append(log, _lines(11, 20)))
    assert main(["inspect", str(log), "--follow"]) == 130
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\f", screen.getvalue())
    frames = [frame for frame in re.split(r"\f[\r\f]+", text) if "records" in frame]
    assert len(frames) >= 2
    for frame in frames:
        lines = frame.replace("\r", "").strip("\f\n").split("\n")
        assert max(map(len, lines)) <= columns
        assert len(lines) <= rows
        assert "Ctrl-C ends" in lines[-1]


def test_a_window_cannot_follow(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``--show`` waits for its window to be closed."""
    assert main(["inspect", str(log), "--follow", "--show"]) == 2
    assert "--follow with -o FILE" in capsys.readouterr().err
