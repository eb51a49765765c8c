"""What workflows, metadata and documents say about Pythons and actions agrees."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
MINORS = [int(minor) for minor in re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', PROJECT)]


def load(name: str) -> dict[str, Any]:
    """Return a workflow."""
    found: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8"))
    return found


def test_each_declared_python_is_tested_and_has_a_wheel() -> None:
    """The classifiers, the matrix of tests, and the wheels."""
    wheels = re.findall(r'"cp3(\d+)-\*"', PROJECT)
    tested = load("tests.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert [f"3.{minor}" for minor in MINORS] == tested
    assert [str(minor) for minor in MINORS] == wheels
    assert f'requires-python = ">=3.{MINORS[0]}"' in PROJECT


def test_the_readme_lists_the_declared_pythons() -> None:
    """The table under "Install it" has each of them, in order."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [header] = re.findall(r"^\| Python \|(.+)$", readme, re.MULTILINE)
    assert [int(minor) for minor in re.findall(r"3\.(\d+)", header)] == MINORS


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_hash(path: Path) -> None:
    """A tag can be moved; a comment says which version the hash is of."""
    used = re.findall(r"uses: (.+)", path.read_text(encoding="utf-8"))
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_a_change_of_the_release_starts_the_release() -> None:
    """Wheel and sdist are built and tried wherever a file that they depend on has changed."""
    paths = load("wheels.yml")[True]["pull_request"]["paths"]  # the key `on` is true in YAML 1.1
    for wanted in (".ci/**", "setup.py", "pyproject.toml", "MANIFEST.in", "autoprof/capture/marks/**"):
        assert wanted in paths
        assert (ROOT / wanted.removesuffix("/**")).exists()
