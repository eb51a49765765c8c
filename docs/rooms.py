"""Write the table of rooms in ``docs/architecture.md`` from the folders of ``autoprof/``: ``python -m docs.rooms``."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

import autoprof

ROOT: Final = Path(__file__).parents[1]
HOUSE: Final = ROOT / "autoprof"
PAGE: Final = ROOT / "docs" / "architecture.md"
BEGIN: Final = "<!-- begin rooms: written by python -m docs.rooms -->"
END: Final = "<!-- end -->"
BESIDE: Final = ("__init__", "__main__", "errors", "testing")
"""Modules of the package that belong to no room."""


@dataclass(frozen=True, order=True)
class Import:
    """An import of one of our modules by another: their dotted names below ``autoprof``, and the line."""

    importer: str
    line: int
    imported: str


@cache
def rooms() -> list[str]:
    """Return the names of the folders of ``autoprof/``, sorted by name."""
    return sorted(folder.name for folder in HOUSE.iterdir() if (folder / "__init__.py").exists())


def module_of(path: Path) -> str:
    """Return the dotted name of a file below the package; empty for the package's own ``__init__``."""
    parts = path.relative_to(HOUSE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str | None:
    """Return the room of a module; None for one of ``BESIDE``."""
    room = module.split(".")[0]
    return room if room in rooms() else None


@cache
def imports() -> tuple[Import, ...]:
    """Return every import of one module of ours by another, those inside functions and for types included.

    A public name counts as the module that has it.
    """
    return tuple(_imports())


def _imports() -> Iterator[Import]:
    for path in sorted(HOUSE.rglob("*.py")):
        package = path.relative_to(HOUSE).parts[:-1]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for name in _imported(node, package):
                yield Import(module_of(path), node.lineno, autoprof._LAZY.get(name, name))


def _imported(node: ast.AST, package: tuple[str, ...]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[2] for alias in node.names if alias.name.split(".")[0] == "autoprof")
    elif isinstance(node, ast.ImportFrom):
        given = node.module.split(".") if node.module else []
        if node.level:
            base = [*package[: len(package) - node.level + 1], *given]
        elif given and given[0] == "autoprof":
            base = given[1:]
        else:
            return
        yield from (".".join([*base, alias.name]) for alias in node.names)


def ordered() -> list[str]:
    """Return the rooms, each behind those that it imports. Raises ``CycleError`` with the rooms of a circle."""
    graph: dict[str, set[str]] = {room: set() for room in rooms()}
    for one in imports():
        importer, imported = room_of(one.importer), room_of(one.imported)
        if importer is not None and imported not in (None, importer):
            graph[importer].add(str(imported))
    sorter = TopologicalSorter(graph)
    sorter.prepare()
    found: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        found += ready
        sorter.done(*ready)
    return found


def table() -> Iterator[str]:
    """Yield the lines of the table: each room with the first paragraph of its docstring."""
    yield "| room | content |"
    yield "|---|---|"
    for room in ordered():
        text = (HOUSE / room / "__init__.py").read_text(encoding="utf-8")
        sentence = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0]
        yield f"| `{room}` | {' '.join(sentence.split()).replace('``', '`').rstrip('.')} |"


def with_table(page: str) -> str:
    """Return the page with its table brought up to date."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join([f"{before}{BEGIN}", "", *table(), "", f"{END}{after}"])


def main() -> int:
    """Write the page where it changed; return 0."""
    old = PAGE.read_text(encoding="utf-8")
    if (new := with_table(old)) != old:
        PAGE.write_text(new, encoding="utf-8")
        print(PAGE.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
