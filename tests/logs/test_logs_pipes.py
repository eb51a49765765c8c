"""Logs that can be read only once: standard input, pipes and process substitutions."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autoprof.cli import main
from autoprof.logs import load_logs

LINES = "".join(f"step {at} loss: {5 - at / 100:.4f}\n" for at in range(1, 101)).encode()


@contextmanager
def standard_input(content: bytes) -> Iterator[None]:
    """Make a pipe with this content the standard input of the process."""
    reading, writing = os.pipe()
    before = os.dup(0)
    os.dup2(reading, 0)
    thread = threading.Thread(target=_write, args=(writing, content))
    thread.start()
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(reading)
        thread.join()


def _write(descriptor: int, content: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


@pytest.mark.parametrize("content", [LINES, gzip.compress(LINES)], ids=["text", "gzip"])
def test_standard_input_is_read(content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """``cat train.log | autoprof inspect -`` has all records, also of a compressed log."""
    with standard_input(content):
        assert main(["inspect", "-"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("standard input\n  records    100 rows, steps 1 to 100\n")
    assert "read standard input as text: 100 lines, 100 records" in out


def test_standard_input_without_a_record_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The message names standard input, not the dash."""
    with standard_input(b""):
        assert main(["inspect", "-"]) == 2
    assert capsys.readouterr().err.startswith("standard input: no training record found")


def test_a_named_pipe_is_read(tmp_path: Path) -> None:
    """A FIFO is read to its end, and the run has its name."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    thread = threading.Thread(target=pipe.write_bytes, args=(LINES,))
    thread.start()
    df = load_logs(pipe)
    thread.join()
    assert len(df) == 100
    assert set(df["run"]) == {str(pipe)}


def test_a_process_substitution_is_read(tmp_path: Path) -> None:
    """``autoprof inspect <(cat a) <(cat b)`` has two runs."""
    log = tmp_path / "train.log"
    log.write_bytes(LINES)
    found = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m autoprof inspect <(cat {log}) <(head -n 50 {log})"],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("/dev/fd/") == 4
    assert "100 rows" in found.stdout
    assert "50 rows" in found.stdout


def test_a_pipe_in_a_folder_is_not_waited_for(tmp_path: Path) -> None:
    """A folder and a pattern give files only: a FIFO that nobody writes to would block for ever."""
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "train.log").write_bytes(LINES)
    assert len(load_logs(tmp_path)) == 100
    assert len(load_logs(str(tmp_path / "*.log"))) == 100


def test_copies_of_pipes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing stays in the temporary folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with standard_input(LINES):
        assert len(load_logs("-")) == 100
    assert list(tmp_path.iterdir()) == []
