"""The pages: their headers, their age, and the tables of the documentation that are made from them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .digest import ROOT, digest
from .parts import PARTS, RESULTS, Part

OLDER: Final = "**Older than the code**:"
RESULT: Final = "**Result**:"
_ABOUT: Final = re.compile(r"`([\w/.]+)` \((\w+)\)")
_MEASURED: Final = re.compile(r"^> Measured on (\d{4}-\d\d-\d\d) at commit `([\w ]+)`", re.MULTILINE)
_BLOCK: Final = re.compile(r"(<!-- figures: ([\w ]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_TABLE: Final = re.compile(r"(<!-- made by `make evidence` -->\n)(.*?)(<!-- end -->)", re.DOTALL)
EVIDENCE: Final = ROOT / "docs" / "evidence.md"


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says of itself."""

    text: str

    @property
    def digests(self) -> dict[str, str]:
        """The digest of each folder of code that the page speaks of, as it was measured."""
        line = next((line for line in self.text.splitlines() if line.startswith("> About ")), "")
        return dict(_ABOUT.findall(line))

    @property
    def changed(self) -> list[str]:
        """The folders that the page states to have changed since."""
        line = next((line for line in self.text.splitlines() if line.startswith(f"> {OLDER}")), "")
        return re.findall(r"`([\w/.]+)`", line)

    @property
    def date(self) -> str:
        """The day of the measurement; empty where the page has no header."""
        found = _MEASURED.search(self.text)
        return found[1] if found else ""

    @property
    def result(self) -> str:
        """The answer in a line."""
        line = next((line for line in self.text.splitlines() if line.startswith(RESULT)), "")
        return line.removeprefix(RESULT).strip()

    def figures(self, name: str) -> str:
        """Return the table of this name. Raises ``KeyError`` where the page has none."""
        return {found[2]: found[3] for found in _BLOCK.finditer(self.text)}[name]


def read(part: Part, folder: Path = RESULTS) -> Page:
    """Return a part's page."""
    return Page((folder / part.page.name).read_text(encoding="utf-8"))


def changed_since(page: Page, root: Path = ROOT) -> list[str]:
    """Return the folders whose code is not the one that was measured."""
    return [path for path, then in page.digests.items() if digest(path, root) != then]


def header(part: Part, machine: Mapping[str, Any], commit: str, digests: Mapping[str, str]) -> str:
    """Return the lines under the title of a page."""
    gpu = f", {machine['gpu']}" if machine.get("gpu") else ""
    lines = [
        f"> Measured on {machine['date'][:10]} at commit `{commit}` by `python -m benchmarks {part.name}`: "
        f"{machine['cpu']}, {machine['cores']} cores{gpu}, Python {machine['python']}, torch {machine['torch']}."
    ]
    if digests:
        lines.append("> About " + ", ".join(f"`{path}` ({then})" for path, then in digests.items()) + ".")
    if part.needs:
        lines.append(f"> It needs {part.needs}.")
    return "\n".join(lines)


def with_header(body: str, head: str) -> str:
    """Put a header under the title of a page."""
    title, _, rest = body.partition("\n")
    return f"{title}\n\n{head}\n\n{rest.strip()}\n"


def stated(text: str, changed: Sequence[str]) -> str:
    """Return a page's text with the line that states its age, or without one."""
    lines = [line for line in text.split("\n") if not line.startswith(f"> {OLDER}")]
    if changed:
        names = ", ".join(f"`{path}`" for path in changed)
        last = max(at for at, line in enumerate(lines) if line.startswith("> "))
        lines.insert(last + 1, f"> {OLDER} {names} changed since.")
    return "\n".join(lines)


def commit() -> str:
    """Return the commit of the working tree, and whether it has changes; ``unknown`` without git."""
    try:
        found = [
            subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
            for words in (("rev-parse", "--short=8", "HEAD"), ("status", "--porcelain", "--", "autoprof"))
        ]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found[0] + " with changes" * bool(found[1])


def documents() -> list[Path]:
    """Return the pages that quote figures."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def refreshed() -> Iterator[tuple[Path, str]]:
    """Yield each file that states ages or figures with the text that it must have."""
    pages = {part.name: read(part) for part in PARTS if part.page.exists()}
    for part in PARTS:
        if part.name in pages:
            yield part.page, stated(pages[part.name].text, changed_since(pages[part.name]))

    def table(found: re.Match[str]) -> str:
        name, _, figures = found[2].partition(" ")
        return found[1] + pages[name].figures(figures) + found[4]

    for path in documents():
        text = _BLOCK.sub(table, path.read_text(encoding="utf-8"))
        if path == EVIDENCE:
            text = _TABLE.sub(lambda found: f"{found[1]}{_evidence(pages)}{found[3]}", text)
        yield path, text


def refresh() -> list[Path]:
    """Rewrite what is not as it must be; return the files that changed."""
    changed = []
    for path, text in list(refreshed()):
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


def _evidence(pages: Mapping[str, Page]) -> str:
    """Return the table of ``docs/evidence.md``: a row for each page."""
    lines = ["| question | result | page, and when it was measured |", "|---|---|---|"]
    for part in PARTS:
        page = pages.get(part.name)
        if page is None:
            lines.append(f"| {part.question} | not measured | `{part.name}` |")
            continue
        age = "; **older than the code**" if changed_since(page) else ""
        needs = f"; needs {part.needs}" if part.needs else ""
        link = f"[{part.name}](../benchmarks/results/{part.name}.md)"
        lines.append(f"| {part.question} | {page.result} | {link}, {page.date}{age}{needs} |")
    return "\n".join(lines) + "\n"
