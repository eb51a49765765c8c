"""The documentation of the configuration is true: its examples load, its messages are those that are given."""

import json
import re
from pathlib import Path

import pytest
from torch import nn

from autoprof._targets import select_targets
from autoprof.config import json_schema, parse_config
from autoprof.config.__main__ import main
from autoprof.config.publish import with_reference
from autoprof.errors import AutoprofError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```(?:\n\n```text\n(.*?)```)?", PAGE, re.DOTALL)


class Stage(nn.Module):
    """A stage of the page's model."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.Linear(1, 1)

    def forward(self, x):
        return self.attn(x)


def documented_model() -> nn.Module:
    """Build the model that the page speaks of."""
    model = nn.Module()
    model.stage1, model.stage2, model.heads = Stage(), Stage(), nn.ModuleList()
    return model


@pytest.mark.parametrize("text", [text for text, message in EXAMPLES if not message])
def test_every_good_example_of_the_page_loads(text):
    """A YAML example that stands without a message is a configuration."""
    assert parse_config(text).enabled


@pytest.mark.parametrize(("text", "message"), [example for example in EXAMPLES if example[1]])
def test_every_bad_example_of_the_page_gives_the_message_below_it(text, message):
    """The messages of the page are word for word those that a user sees."""
    with pytest.raises(AutoprofError) as raised:
        select_targets(documented_model(), parse_config(text, "train.yaml"))
    assert str(raised.value) == message.rstrip("\n")


def test_the_page_is_current():
    """The tables of the reference are those that the schema's docstrings give now."""
    assert with_reference(PAGE) == PAGE, "run: python -m autoprof.config --refresh"


def outline(schema):
    """Reduce a JSON Schema to what it says, leaving out how this version of pydantic arranges it."""
    words = ("description", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    return {
        name: {key: {word: field[word] for word in words if word in field} for key, field in part["properties"].items()}
        for name, part in {"": schema, **schema["$defs"]}.items()
    }


def test_the_published_json_schema_is_current():
    """The JSON Schema in ``configs`` says what the schema says now."""
    published = json.loads((ROOT / "configs" / "autoprof.schema.json").read_text(encoding="utf-8"))
    assert outline(published) == outline(json_schema()), "run: python -m autoprof.config --refresh"


def test_the_command_prints_the_json_schema(capsys):
    """Who has only the installed package gets the file for the editor from it."""
    assert main([]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()


def test_the_command_renews_nothing_outside_a_checkout(capsys, tmp_path, monkeypatch):
    """It says where it wants to be called, and how."""
    monkeypatch.chdir(tmp_path)
    assert main(["--refresh"]) == 1
    assert "the root of a checkout" in capsys.readouterr().err
    assert main(["--wrong"]) == 2
    assert "usage: " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
