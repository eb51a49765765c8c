"""The command ``autoprof``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import autoprof
from autoprof.cli import main


def _saved_run(output: Path, *, closed: bool) -> Path:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    session = autoprof.instrument(model, {"output": str(output), "sinks": {"jsonl": {"flush_s": 0}}})
    for _ in range(5):
        model(torch.ones(1, 2)).sum().backward()
        session.step()
    session.summary()
    assert session.folder is not None
    session.close()
    if not closed:
        (session.folder / "summary.json").unlink()
    return session.folder


def test_a_good_configuration_is_said_to_be_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``autoprof config FILE`` counts what the file asks for and exits with 0."""
    file = tmp_path / "good.yaml"
    file.write_text("targets: [{match: 'a.*'}]\n")
    assert main(["config", str(file)]) == 0
    assert "ok, 1 rules" in capsys.readouterr().out


def test_a_wrong_configuration_is_one_message_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``autoprof config FILE`` reports file, line and key, without a traceback, and exits with 2."""
    file = tmp_path / "bad.yaml"
    file.write_text("targets:\n  - mach: 'a'\n")
    assert main(["config", str(file)]) == 2
    message = capsys.readouterr().err
    assert f"{file}:2: targets[0]" in message
    assert "match" in message
    assert "Traceback" not in message


def test_the_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    """``autoprof config --schema`` prints a JSON Schema."""
    assert main(["config", "--schema"]) == 0
    assert "targets" in json.loads(capsys.readouterr().out)["properties"]


def test_a_saved_run_is_shown_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``autoprof show RUN`` prints the summary of a closed run."""
    folder = _saved_run(tmp_path, closed=True)
    assert main(["show", str(folder)]) == 0
    assert "forward" in capsys.readouterr().out


def test_a_run_that_was_killed_is_shown_from_its_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a summary, ``autoprof show`` adds the records up and says so."""
    folder = _saved_run(tmp_path, closed=False)
    assert main(["show", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "not closed" in shown
    assert "forward" in shown


def test_a_folder_without_a_run_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``autoprof show`` of anything else exits with 2 and says what a run is."""
    assert main(["show", str(tmp_path)]) == 2
    assert "run.json" in capsys.readouterr().err


@pytest.mark.parametrize("command", [[sys.executable, "-m", "autoprof"], ["autoprof"]])
def test_the_command_exists(command: list[str]) -> None:
    """``autoprof`` and ``python -m autoprof`` are the same command."""
    if command == ["autoprof"]:
        command = [str(Path(sys.executable).with_name("autoprof"))]
    found = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == f"autoprof {autoprof.__version__}"


def test_no_command_is_an_error_of_usage() -> None:
    """``autoprof`` alone names the commands and exits with 2."""
    found = subprocess.run([sys.executable, "-m", "autoprof"], capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert "demo" in found.stderr


def test_without_a_run_the_latest_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``autoprof show`` opens the run in ``runs`` that started last; its last line says which."""
    folders = [_saved_run(tmp_path / "runs", closed=True) for _ in range(2)]
    for folder, day in zip(folders, ("02", "01"), strict=True):
        info = json.loads((folder / "run.json").read_text("utf-8"))
        (folder / "run.json").write_text(json.dumps({**info, "start": f"2026-01-{day}T00:00:00+00:00"}))
    monkeypatch.chdir(tmp_path)
    assert main(["show"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"runs/{folders[0].name}"
    assert main(["show", "--full"]) == 0
    assert "dropped    nothing" in capsys.readouterr().out


def test_without_any_run_the_message_says_what_to_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``autoprof show`` in a directory without runs exits with 2."""
    monkeypatch.chdir(tmp_path)
    assert main(["show"]) == 2
    assert "runs: neither the folder of a run nor a folder of runs" in capsys.readouterr().err
