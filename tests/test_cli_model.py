"""``autoprof check``: a configuration, and the modules that it selects in a model."""

import json
from pathlib import Path

import pytest

from autoprof.frontends.cli import main

NET = """
from torch import nn

print("made by the user's code")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.Linear(8, 8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x):
        return self.mlp(self.attention(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(4)])
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def number():
    return 3
"""


@pytest.fixture(autouse=True)
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file with a model in the working directory; 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.path", ["", *__import__("sys").path])
    (tmp_path / "net_of_test.py").write_text(NET)
    return "net_of_test.py:Net"


def test_without_a_configuration_the_blocks_and_the_modules_in_them_are_shown(
    net: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those with which a run begins that has no rules."""
    assert main(["check", net, "--json"]) == 0
    names = {one["name"] for one in json.loads(capsys.readouterr().out)["targets"]}
    assert names == {"blocks.*", "blocks.*/attention", "blocks.*/mlp", "blocks.*/mlp/0", "blocks.*/mlp/1",
                     "blocks.*/mlp/2", "head"}  # fmt: skip


def test_modules_of_one_name_share_a_line(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the first and the last of them, and their number."""
    Path("a.yaml").write_text("targets: [{match: 'blocks\\.[1-3]', name: Block}, {match: head}]\n")
    assert main(["check", net, "a.yaml"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "name   modules",
        "Block  blocks.1 … blocks.3 (3)",
        "head   head",
    ]


def test_a_rule_that_selects_nothing_is_an_error(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the line of the file and the nearest module."""
    Path("a.yaml").write_text("targets:\n  - match: 'bloks.0'\n")
    assert main(["check", net, "a.yaml"]) == 2
    assert "a.yaml:2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("net_of_test.py:Nett", "did you mean 'Net'?"),
        ("missing.py:Net", "there is no file missing.py"),
        ("net_of_test.py", "is not the path of a factory"),
        ("net_of_test.py:number", "returns a int; allowed: a model"),
    ],
)
def test_a_wrong_model_is_one_message(model: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It names the argument and what is allowed."""
    assert main(["check", model]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "MODEL" in shown
    assert "Traceback" not in shown
