"""The pages of the documentation: links resolve, and the index names every page."""

import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

from autoprof.config.describe import parts
from autoprof.sinks import Config

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "examples/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


def _anchors(page: Path) -> set[str]:
    """The anchors that a code host makes of the headings: lower case, spaces as hyphens, no punctuation."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    """Each link to a file of the repository leads to a file, and its anchor to a heading."""
    broken = []
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in _anchors(target)):
            broken.append(link)
    assert not broken


def _below_docs(page: Path) -> str:
    return str(page.relative_to(ROOT / "docs"))


def test_pictures_exist_and_are_small() -> None:
    """Each picture of a page is in the repository and has at most 150 kB."""
    for page in PAGES:
        text = page.read_text("utf-8")
        for link in (*re.findall(r"!\[[^]]*\]\(([^)]+)\)", text), *re.findall(r'(?:src|srcset)="([^"]+)"', text)):
            picture = page.parent / link
            assert picture.is_file(), f"{page.name}: {link}"
            assert picture.stat().st_size <= 150_000, f"{link} is larger than 150 kB"


def _code(page: Path) -> set[str]:
    """The texts in backticks, outside of code blocks."""
    return set(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)))


KEYS = {f"{section}.{name}" for section, part in parts(Config) for name in part.model_fields if section}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_keys_of_the_configuration_exist(page: Path) -> None:
    """A dotted key in a sentence, such as ``sample.budget``, is one of the schema."""
    sections = {key.partition(".")[0] for key in KEYS}
    named = (re.match(r"([a-z_]+)((?:\.[a-z_]+)+)(?=$|:)", text) for text in _code(page))
    assert {one[0] for one in named if one and one[1] in sections} <= KEYS


def _exists(name: str) -> bool:
    """Whether a dotted name leads to a module, or to something in one."""
    try:
        resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_of_the_package_exist(page: Path) -> None:
    """A dotted name in a sentence, such as ``autoprof.logs.load_logs``, leads to something."""
    named = {found[0] for text in _code(page) if (found := re.match(r"autoprof(?:\.\w+)+", text))}
    files = {name for name in named if re.search(r"\.(yaml|explain)$", name)}
    extras = {name for name in named if name.startswith("autoprof.integrations.")}  # of packages that may be absent
    assert [name for name in named - files - extras if not _exists(name)] == []


def test_the_changelog_leads_to_the_pages() -> None:
    """A version has at most 60 lines, and each of its entries a link to a page."""
    for version in re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)[1:]:
        entries = re.split(r"^- ", version, flags=re.MULTILINE)[1:]
        assert [entry for entry in entries if "](docs/" not in entry] == []
        assert len(version.splitlines()) <= 60


def test_the_readme_is_short() -> None:
    """At most 150 lines: the rest is on pages of ``docs/``."""
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150


def test_the_index_names_every_page() -> None:
    """``docs/index.md`` links each page of ``docs/``; ``extending.md`` those below it."""
    index = (ROOT / "docs/index.md").read_text("utf-8")
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs/howto").glob("*.md")]
    missing = [page.name for page in pages if page.name != "index.md" and f"({_below_docs(page)}" not in index]
    extending = (ROOT / "docs/extending.md").read_text("utf-8")
    missing += [page.name for page in (ROOT / "docs/extending").glob("*.md") if page.name not in extending]
    assert not missing
