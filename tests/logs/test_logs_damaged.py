"""Files as runs and people leave them: cut, compressed, linked in circles, in UTF-16."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from autoprof.logs import load_logs

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


def test_a_folder_gives_only_its_logs(tmp_path: Path) -> None:
    """The settings, the README and the source beside a log are no runs."""
    (tmp_path / "train.log").write_text("\n".join(LINES) + "\n")
    (tmp_path / "README.md").write_text("step 1 loss: 2.0\nstep 2 loss: 1.0\n")
    (tmp_path / "args.json").write_text(json.dumps({"lr": 0.1, "epochs": 3, "batch_size": 8}))
    (tmp_path / "setup.log").write_text("Namespace(lr=0.1, epochs=3, batch_size=8, step=1, loss=2)\n")
    df = load_logs(tmp_path)
    assert [Path(entry["path"]).name for entry in df.attrs["files"]] == ["train.log"]
