"""Print the JSON Schema of the configuration; with ``--refresh``, renew the files that a checkout makes from it."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from .publish import schema_text, with_reference

SCHEMA_FILE = Path("configs/autoprof.schema.json")
REFERENCE_FILE = Path("docs/configuration.md")


def main(arguments: list[str]) -> int:
    """Run the command and return its exit status."""
    if not arguments:
        sys.stdout.write(schema_text())
        return 0
    if arguments != ["--refresh"]:
        sys.stderr.write("usage: python -m autoprof.config [--refresh]\n")
        return 2
    if foreign := import_module("autoprof.sinks").SINKS.entry_points:
        names = ", ".join(sorted(foreign))
        sys.stderr.write(f"sinks of other packages are installed ({names}); allowed: an environment without them\n")
        return 1
    if not REFERENCE_FILE.is_file():
        sys.stderr.write(f"{REFERENCE_FILE}: there is no such file; allowed: the root of a checkout of autoprof\n")
        return 1
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
    REFERENCE_FILE.write_text(with_reference(REFERENCE_FILE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
