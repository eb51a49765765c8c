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

LINES = [f"step {at} loss: {5 - at / 100:.4f}" for at in range(1, 401)]


def test_a_truncated_gzip_file_is_read_up_to_its_end(tmp_path: Path) -> None:
    """The records before the cut are read, with a note."""
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress("\n".join(LINES).encode())[:-200])
    df = load_logs(path)
    assert 10 < len(df) < 400
    assert list(df["loss"][:3]) == [4.99, 4.98, 4.97]
    assert any("ends in the middle" in note for note in df.attrs["files"][0]["notes"])


def test_links_that_form_a_loop_are_followed_once(tmp_path: Path) -> None:
    """Each file of ``**`` is one run, also where two links lead back to the top."""
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.log").write_text("\n".join(LINES) + "\n")
        (tmp_path / name / "up").symlink_to(tmp_path, target_is_directory=True)
    df = load_logs(str(tmp_path / "**" / "*.log"))
    assert len(df.attrs["files"]) == 3


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_read(tmp_path: Path, encoding: str) -> None:
    """As PowerShell's redirection and editors leave it."""
    path = tmp_path / "log"
    path.write_bytes("\r\n".join([*LINES, ""]).encode(encoding))
    assert len(load_logs(path)) == 400


@pytest.mark.parametrize(("cut", "values"), [("step 401 loss: 0.12", 400), ("step 401 loss: 0.1234", 401)])
def test_a_number_that_is_cut_is_not_read(tmp_path: Path, cut: str, values: int) -> None:
    """The last number of a file without a last line end counts only if it is as long as those before it."""
    path = tmp_path / "log"
    path.write_text("\n".join([*LINES, cut]))
    assert load_logs(path)["loss"].notna().sum() == values


def _cut_log(form: str, last: str) -> str:
    """Return a log of 100 whole records and the beginning of another one."""
    rows = {
        "csv": "step,loss\n" + "".join(f"{at},{at * 10}\n" for at in range(1, 101)),
        "csv without a fixed number of decimals": "step,loss\n" + "".join(f"{at},{at / 8}\n" for at in range(1, 101)),
        "step behind the loss": "".join(f"loss: 0.5 step: {at}\n" for at in range(1001, 1101)),
        "exponent": "".join(f"step {at} loss: {at * 1e-5:.3e}\n" for at in range(1, 101)),
        "unit": "".join(f"step {at} loss: 0.5 dt: 12.25ms\n" for at in range(1, 101)),
        "pattern": "".join(f"at {at} is {at * 1.5}\n" for at in range(1, 101)),
        "blocks": "".join(f"step: {at}\nloss: {at / 8}\nlr: 0.1\ngrad_norm: {at * 10}\n\n" for at in range(1, 101)),
    }
    return rows[form] + last


@pytest.mark.parametrize(
    ("form", "last", "column"),
    [
        ("csv", "101,10", "loss"),
        ("csv without a fixed number of decimals", "101,12.6", "loss"),
        ("exponent", "step 101 loss: 1.010e", "loss"),
        ("exponent", "step 101 loss: 1.010e-", "loss"),
        ("unit", "step 101 loss: 0.5 dt: 12.25m", "step_time_s"),
        ("pattern", "at 101 is 15", "value"),
        ("blocks", "step: 101\nloss: 12.625\nlr: 0.1\ngrad_norm: 10", "grad_norm"),
    ],
)
def test_a_value_that_may_be_cut_is_absent_and_said(tmp_path: Path, form: str, last: str, column: str) -> None:
    """In every format: 10 of 1010, 1.01 of 1.01e-3, 12 minutes of 12 milliseconds."""
    path = tmp_path / "log"
    path.write_text(_cut_log(form, last))
    df = load_logs(path, pattern=r"at (?P<step>\d+) is (?P<value>\S+)" if form == "pattern" else None)
    assert df["step"].tolist()[:100] == list(range(1, 101))
    assert df[column].notna().sum() == 100
    assert df["step"].iloc[-1] == (100 if "csv" in form else 101)  # a row without a measurement is no record
    assert any("may be cut" in note for note in df.attrs["files"][0]["notes"])


def test_a_record_whose_step_is_cut_is_not_read(tmp_path: Path) -> None:
    """Its values would be those of another step."""
    path = tmp_path / "log"
    path.write_text(_cut_log("step behind the loss", "loss: 9.9 step: 110"))
    df = load_logs(path)
    assert df["step"].tolist() == list(range(1001, 1101))
    assert set(df["loss"]) == {0.5}


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


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_chinese_in_utf_16_without_a_mark_is_read(tmp_path: Path, encoding: str) -> None:
    """Fewer bytes are zero than in English."""
    path = tmp_path / "log"
    path.write_bytes("".join(f"训练步数: {at} 损失: {at / 8}\n" for at in range(1, 101)).encode(encoding))
    assert load_logs(path)["loss"].tolist() == [at / 8 for at in range(1, 101)]


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
