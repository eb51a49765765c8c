"""``autoprof skill``: instructions for a coding agent, whose fields and lines are those of today."""

import json
import re
from pathlib import Path

import pytest

from autoprof.frontends.cli import main

KEYS = re.compile(r"^\| `([\w.\[\]]+)` \|", re.MULTILINE)


@pytest.fixture
def skill(capsys: pytest.CaptureFixture[str]) -> str:
    """The printed file."""
    assert main(["skill"]) == 0
    return capsys.readouterr().out


def test_it_begins_with_a_name_and_a_description(skill: str) -> None:
    """An agent reads these two lines of all skills, and the rest of the one that it needs."""
    head = skill.split("---\n")[1].splitlines()
    assert head[0] == "name: autoprof"
    assert head[1].startswith("description: Find why PyTorch training steps are slow")
    assert len(head) == 2


def test_each_field_that_it_names_is_in_the_schema(skill: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of the explanation, of a cause, and of its experiment."""
    assert main(["explain", "--schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    named = KEYS.findall(skill)
    assert len(named) > 8
    for path in named:
        at = schema
        for part in path.replace("[]", "").split("."):
            at = at["properties"][part]
            at = at.get("items", at)
            reference = next((one["$ref"] for one in (at, *at.get("anyOf", ())) if "$ref" in one), None)
            at = schema["$defs"][reference.rpartition("/")[2]] if reference else at


def test_it_is_part_of_the_package() -> None:
    """A wheel has it."""
    settings = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert '"frontends/cli/skill.md"' in settings
