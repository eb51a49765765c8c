"""Plain words: phrases that hide their noun or that only autoprof's authors used do not come back."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import autoprof

ROOT = Path(autoprof.__file__).parents[1]
FORBIDDEN = (
    r"Returns? what", r"Take word", r"word of", r"told of", r"left alone", r"leaves? alone", r"stands? still",
    r"kept apart", r"whoever", r"that which", r"cannot be told", r"nobody", r"comes? back to", r"look(s|ed)? up to",
    r"come_back", r"look_up", r"hurry", r"surroundings", r"foresee", r"equipment", r"untypical", r"dearest", r"rarest",
    r"goes home", r"at rest", r"is said once", r"what it comes to", r"in the making", r"of its own accord",
    r"takes? note", r"told", r"the rest is for", r"comes? to", r"in turns", r"kin", r"by itself", r"by themselves",
    r"lest", r"seldom", r"ours and yours", r"wants? (its|their)", r"priced?", r"dear", r"ought", r"go(es)? on with",
    r"makes? up for", r"gets? between", r"in the hands of", r"apart from",
)  # fmt: skip
"""Regular expressions, matched as whole words without regard to case."""
SAVED_KEY = "# key of saved runs"
"""Marks a line that has to spell an old key, so that files of older versions are read."""
MOST_WHATS = 2.0
"""Uses of "what" in 1,000 lines of a room: pyinstrument, structlog and httpx have 0.2 to 0.7."""


def _rooms() -> dict[str, list[Path]]:
    rooms: dict[str, list[Path]] = {}
    package = ROOT / "autoprof"
    for path in sorted(package.rglob("*")):
        if path.suffix in (".py", ".c", ".h", ".pyi"):
            room = path.relative_to(package).parts[0].removesuffix(".py")
            rooms.setdefault(room, []).append(path)
    return rooms


def _pages() -> list[Path]:
    """Return the pages of the docs that are written by hand."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")]
    return [page for page in pages if page != ROOT / "docs/api.md"]


def test_phrases_that_hide_their_noun_do_not_come_back() -> None:
    """No name, docstring, comment or message of a room, and no page of the docs, has one of the phrases."""
    pattern = re.compile(rf"\b({'|'.join(FORBIDDEN)})\b", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for paths in (*_rooms().values(), _pages(), sorted((ROOT / "examples").iterdir()))
        for path in paths
        if path.is_file()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for match in pattern.finditer(line)
        if SAVED_KEY not in line
    ]
    assert not found, "\n".join(found)


def test_what_is_a_rare_word() -> None:
    """A sentence whose subject is "what" hides its noun: a room of 1,000 lines has two at most."""
    crowded = []
    for room, paths in _rooms().items():
        text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
        count = len(re.findall(r"\bwhat\b", text, re.IGNORECASE))
        if count > max(MOST_WHATS * text.count("\n") / 1000, 1):
            crowded.append(f"{room}: {count} in {text.count(chr(10))} lines")
    assert not crowded, "\n".join(crowded)


def test_a_class_name_means_one_class() -> None:
    """No two classes of the package, private and nested ones included, have the same name."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "autoprof").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    shared = {name: found for name, found in places.items() if len(found) > 1}
    assert not shared, shared
