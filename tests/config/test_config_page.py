"""``docs/configuration.md`` is true: its examples load, its messages are those that are given."""

import json
import re

import pytest
from torch import nn

from autoprof.config.json_schema import json_schema
from autoprof.errors import AutoprofError
from autoprof.sinks import Config, parse_config
from autoprof.targets import select_targets
from docs.settings import REFERENCE_FILE, SCHEMA_FILE, count_keys, with_reference

PAGE = REFERENCE_FILE.read_text(encoding="utf-8")
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


def outline(schema):
    """Reduce a JSON Schema to its content, without its arrangement by this version of pydantic."""
    words = ("description", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    return {
        name: {key: {word: field[word] for word in words if word in field} for key, field in part["properties"].items()}
        for name, part in {"": schema, **schema["$defs"]}.items()
    }


def test_the_published_files_are_current():
    """The tables of the page and the JSON Schema in ``configs`` are those of the schema."""
    assert with_reference(PAGE) == PAGE, "run: python -m docs.settings"
    published = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    assert outline(published) == outline(json_schema(Config)), "run: python -m docs.settings"


def test_the_configuration_is_small():
    """Each key is one more thing to know."""
    assert count_keys() <= 90


def test_every_field_is_documented():
    """The docstring under each field reaches the JSON Schema that editors read."""
    schema = json_schema(Config)
    parts = [schema, *schema["$defs"].values()]
    fields = {f"{part['title']}.{key}": field for part in parts for key, field in part["properties"].items()}
    assert not [key for key, field in fields.items() if not field.get("description")]
    assert len(fields) > 30


def test_the_json_schema_refuses_unknown_keys_but_knows_the_old_block():
    """Editors mark typing mistakes, and ignore a project's own keys."""
    schema = json_schema(Config)
    assert schema["additionalProperties"] is False
    assert {"LOG", "SAVE_DIR", "targets"} <= set(schema["properties"])
    assert schema["patternProperties"] == {"^[A-Z][A-Z0-9_]*$": {}}
