"""A line of source names a place, and keeps nothing else of its file."""

from __future__ import annotations

import linecache
import os
from pathlib import Path

import pytest

from autoprof.diagnose._source_lines import source_line


def test_a_line_is_read_and_its_file_is_not_kept(tmp_path: Path) -> None:
    """``linecache`` keeps all lines of a file that it reads."""
    file = tmp_path / "train.py"
    file.write_text("first = 1\n    second = 2\n")
    assert source_line(str(file), 2) == "second = 2"
    assert str(file) not in linecache.cache


def test_a_file_that_the_program_has_read_itself_stays(tmp_path: Path) -> None:
    """Its entry may be all there is of a cell of a notebook."""
    linecache.cache["<cell>"] = (4, None, ["pass\n"], "<cell>")
    try:
        assert source_line("<cell>", 1) == "pass"
        assert "<cell>" in linecache.cache
    finally:
        del linecache.cache["<cell>"]


def test_a_line_that_does_not_exist_is_empty() -> None:
    """A file may be gone, or shorter than it was."""
    assert source_line("/nowhere/train.py", 3) == ""


def test_a_file_is_read_up_to_the_line_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read in a step of the training, however long it is."""
    monkeypatch.setattr(linecache, "getline", pytest.fail)
    os.mkfifo(tmp_path / "train.py")
    writer = os.open(tmp_path / "train.py", os.O_RDWR)  # never ends: who reads on waits for ever
    os.write(writer, b"first = 1\nsecond = '\xe9'\nthird = 3\n")
    try:
        assert source_line(str(tmp_path / "train.py"), 2) == "second = '\ufffd'"
    finally:
        os.close(writer)
