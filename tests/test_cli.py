"""The command ``autoprof``."""

import argparse
import json
import shlex
import subprocess
from pathlib import Path

import pytest
import torch
from forking_python import ForkingPython

import autoprof
from autoprof.frontends.cli import main, make_parser
from autoprof.frontends.cli._common import EXIT_STATUS


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
    """``autoprof check FILE`` counts what the file asks for and exits with 0."""
    file = tmp_path / "good.yaml"
    file.write_text("targets: [{match: 'a.*'}]\n")
    assert main(["check", str(file)]) == 0
    assert "ok, 1 rules" in capsys.readouterr().out


def test_a_wrong_configuration_is_one_message_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``autoprof check FILE`` reports file, line and key, without a traceback, and exits with 2."""
    file = tmp_path / "bad.yaml"
    file.write_text("targets:\n  - mach: 'a'\n")
    assert main(["check", str(file)]) == 2
    message = capsys.readouterr().err
    assert f"{file}:2: targets[0]" in message
    assert "match" in message
    assert "Traceback" not in message


def test_the_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    """``autoprof check --schema`` prints a JSON Schema."""
    assert main(["check", "--schema"]) == 0
    assert "targets" in json.loads(capsys.readouterr().out)["properties"]


def test_the_command_exists(forking_python: ForkingPython) -> None:
    """``python -m autoprof`` is the command."""
    command = [*forking_python.command, "-m", "autoprof", "--version"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == f"autoprof {autoprof.__version__}"


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
    assert "\nstep  " in capsys.readouterr().out


def test_a_misspelt_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """The list of all commands is what ``--help`` prints."""
    assert main(["shw"]) == 2
    assert capsys.readouterr().err == "autoprof: 'shw' is not a command; did you mean 'show'?\n"


def _commands() -> dict[str, argparse.ArgumentParser]:
    parser = make_parser()
    (commands,) = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    return dict(commands.choices)


@pytest.mark.parametrize("command", list(_commands()))
def test_help_has_examples_that_parse(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each example of a command's help is a command line that it accepts; no line is cut or wider than 80."""
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0
    examples = [line.strip() for line in text.partition("examples:")[2].splitlines() if line.startswith("  autoprof ")]
    assert examples
    for example in examples:
        words = shlex.split(example.partition(" > ")[0])
        assert make_parser().parse_args(words[1:]).command == command


def test_the_commands_and_exit_statuses_are_in_the_help_and_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    """One table, ``EXIT_STATUS``; and the page has a row for each command."""
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    page = (Path(__file__).parents[1] / "docs" / "commands.md").read_text("utf-8")
    for status, meaning in EXIT_STATUS.items():
        assert f"{status} {meaning}" in shown
        assert f"| {status} | {meaning} |" in page
    assert not [name for name in _commands() if f"`autoprof {name}`" not in page]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["show", "--bad"], "autoprof show: --bad is not an option; autoprof show --help has those allowed"),
        (["--bad"], "autoprof: --bad is not an option; autoprof --help has those allowed"),
    ],
)
def test_an_unknown_option_names_its_command(
    given: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the usage of all commands."""
    assert main(given) == 2
    assert capsys.readouterr().err.strip() == message
