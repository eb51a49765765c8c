"""Print the part of CHANGELOG.md about the version of a tag. Fails where pyproject.toml has another version."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def version_of(project: str) -> str:
    """Return the version in the text of a pyproject.toml."""
    return re.findall(r'^version = "(.+)"$', project, re.MULTILINE)[0]


def part_of(changelog: str, version: str) -> str | None:
    """Return the text below the heading of a version, None where there is no such heading."""
    for part in re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        if heading.split()[0].strip("[]") == version:
            return text.strip()
    return None


def with_whole_links(text: str, files: str) -> str:
    """Return the text with links to files of the repository made whole: a release is no file beside them."""
    return re.sub(r"\]\((?![a-z]+:|#)", f"]({files}/", text)


def main() -> int:
    """Print the notes; return 1 where the tag, the version and the changelog do not agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tag", help="such as v1.2.3")
    parser.add_argument("--repository", metavar="URL", help="where links to files lead (default: left as they are)")
    options = parser.parse_args()
    version = version_of((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    if options.tag != f"v{version}":
        print(f"tag {options.tag}: pyproject.toml has the version {version}", file=sys.stderr)
        return 1
    notes = part_of((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    if not notes:
        print(f"CHANGELOG.md has nothing about {version}", file=sys.stderr)
        return 1
    print(with_whole_links(notes, f"{options.repository}/blob/{options.tag}") if options.repository else notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
