"""Files as runs and people leave them: cut, compressed, linked in circles, in UTF-16."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from autoprof.errors import AutoprofError
from autoprof.logs import load_logs
from autoprof.logs.report import render_report

LINES = [f"step {at}, loss: {5 - at / 100:.4f}" for at in range(1, 401)]


def test_a_truncated_gzip_file_is_read_up_to_its_end(tmp_path: Path) -> None:
    """The records before the cut are read, with a note."""
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress("\n".join(LINES).encode())[:-200])
    df = load_logs(path)
    assert 10 < len(df) < 400
    assert list(df["loss"][:3]) == [4.99, 4.98, 4.97]
    assert any("ends in the middle" in note for note in df.attrs["files"][0]["notes"])


@pytest.mark.parametrize(
    ("row", "last", "pattern"),
    [
        ("{0},{0}0", "101,10", None),
        ("step {0}, loss: 1.{0}e-3", "step 101, loss: 1.101", None),
        ("step {0}, loss: 0.5, dt: 12ms", "step 101, loss: 0.5, dt: 12m", None),
        ("loss: 0.5, step: {0}0", "loss: 0.5, step: 101", None),
        ("at {0} is {0}5", "at 101 is 10", r"at (?P<step>\d+) is (?P<loss>\S+)"),
    ],
    ids=["csv", "exponent", "unit", "step", "pattern"],
)
def test_a_line_that_may_be_cut_is_not_read(tmp_path: Path, row: str, last: str, pattern: str | None) -> None:
    """A last line without its end: 10 of 1010, 1.01 of 1.01e-3, minutes of milliseconds. A note says so."""
    path = tmp_path / "log"
    header = "step,loss\n" if row.startswith("{") else ""
    path.write_text(header + "".join(row.format(at) + "\n" for at in range(1, 101)) + last)
    df = load_logs(path, pattern=pattern)
    assert len(df) == df["loss"].notna().sum() == 100
    assert "the file ends within a line, which may be cut and is not read" in df.attrs["files"][0]["notes"]


def test_damaged_compressed_data_are_not_read(tmp_path: Path) -> None:
    """Bytes that were changed decompress to other numbers: no value is certain."""
    data = bytearray(gzip.compress("\n".join(LINES).encode()))
    data[len(data) // 2] ^= 0xFF
    path = tmp_path / "a.log.gz"
    path.write_bytes(data)
    with pytest.raises(AutoprofError, match="the compressed data are damaged"):
        load_logs(path)
    (tmp_path / "b.log").write_text("\n".join(LINES) + "\n")
    assert load_logs(tmp_path).attrs["unread"] == [f"{path} (damaged)"]


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_file_without_a_whole_record_says_so(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    """A file of bzip2 is compressed in blocks of 900 kB: a cut one may hold nothing."""
    path = tmp_path / "a.log"
    path.write_bytes(compress("\n".join(LINES).encode())[:32])
    with pytest.raises(AutoprofError, match="ends before its first record"):
        load_logs(path)


def test_a_folder_gives_only_its_logs(tmp_path: Path) -> None:
    """The settings, the README and the source beside a log are no runs."""
    (tmp_path / "train.log").write_text("\n".join(LINES) + "\n")
    (tmp_path / "README.md").write_text("step 1 loss: 2.0\nstep 2 loss: 1.0\n")
    (tmp_path / "args.json").write_text(json.dumps({"lr": 0.1, "epochs": 3, "batch_size": 8}))
    (tmp_path / "setup.log").write_text("Namespace(lr=0.1, epochs=3, batch_size=8, step=1, loss=2)\n")
    df = load_logs(tmp_path)
    assert [Path(entry["path"]).name for entry in df.attrs["files"]] == ["train.log"]


@pytest.mark.parametrize("value", ["9" * 400, f"[{'9' * 400}]", f"[1, -{'9' * 400}]"])
def test_an_integer_beyond_the_range_of_floats_is_infinite(tmp_path: Path, value: str) -> None:
    """As the same number written as a float; the other records are read."""
    path = tmp_path / "log.jsonl"
    lines = [f'{{"step": {at}, "loss": {at}.5, "other": {value if at == 3 else at}}}' for at in range(1, 9)]
    path.write_text("\n".join(lines))
    df = load_logs(path)
    assert list(df["loss"]) == [at + 0.5 for at in range(1, 9)]
    assert render_report(df)


def test_a_report_of_infinite_times_is_made(tmp_path: Path) -> None:
    """A run's whole time may then be infinite, or no number."""
    path = tmp_path / "log.jsonl"
    lines = [f'{{"step": {at}, "loss": 0.5, "elapsed_s": {"1e999" if at == 8 else at}}}' for at in range(1, 9)]
    path.write_text("\n".join(lines))
    assert any("inf s" in line for line in render_report(load_logs(path)))


@pytest.mark.parametrize("text", ["[" * 20_000, '{"a":' * 20_000, '[{"step": 1, "a": ' + "[" * 20_000])
@pytest.mark.parametrize("lines", [1, 3])
def test_a_document_that_is_nested_too_deeply_has_no_record(tmp_path: Path, text: str, lines: int) -> None:
    """No error of Python's own comes out."""
    path = tmp_path / "log.json"
    path.write_text("\n".join([text] * lines))
    with pytest.raises(AutoprofError):
        load_logs(path)
