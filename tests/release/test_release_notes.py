"""The text of a release: the changelog's part about its version."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import autoprof

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "release_notes.py"
NOTES = runpy.run_path(str(SCRIPT))

CHANGELOG = """# Changelog

## 1.1.0 — unreleased

### Added

- More ([run](docs/run.md), [site](https://example.org)).

## [1.0.0] - 2026-01-02

The first.
"""


def test_a_part_ends_at_the_next_version() -> None:
    """The heading is left out, whatever stands behind the version; a version that is a part of another is none."""
    part_of = NOTES["part_of"]
    assert part_of(CHANGELOG, "1.0.0") == "The first."
    assert part_of(CHANGELOG, "1.1.0").splitlines()[0] == "### Added"
    assert "The first" not in part_of(CHANGELOG, "1.1.0")
    assert part_of(CHANGELOG, "1.0") is None


def test_links_to_files_lead_to_the_tag() -> None:
    """Beside a release there are no files; other links are left alone."""
    text = NOTES["with_whole_links"](CHANGELOG, "https://host/repo/blob/v1.1.0")
    assert "[run](https://host/repo/blob/v1.1.0/docs/run.md)" in text
    assert "[site](https://example.org)" in text


def run(tag: str) -> subprocess.CompletedProcess[str]:
    """Run the script for a tag."""
    return subprocess.run([sys.executable, str(SCRIPT), tag], capture_output=True, text=True, check=False)


def test_the_present_version_has_notes() -> None:
    """The tag of this version would be released with its part of the changelog."""
    ended = run(f"v{autoprof.__version__}")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(ended.stdout.splitlines()) > 3
    assert not re.search(r"^## ", ended.stdout, re.MULTILINE)


@pytest.mark.parametrize("tag", ["v0.0.9", "0.1.0"])
def test_another_tag_is_refused(tag: str) -> None:
    """Before anything is published: pyproject.toml has another version."""
    ended = run(tag)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"tag {tag}: pyproject.toml has the version {autoprof.__version__}\n"
