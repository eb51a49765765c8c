"""The pages of evidence: each is one of a part, says whether the code has changed since, and is quoted as it is."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from forking_python import ForkingPython

from benchmarks import __main__ as command
from benchmarks import pages
from benchmarks.digest import ROOT, c_code, digest, python_code
from benchmarks.parts import BY_NAME, PARTS, RESULTS, Part


def test_each_page_is_one_of_a_part() -> None:
    """The folder has pages alone: no raw results, and no page that nothing measures."""
    assert {path.name for path in RESULTS.iterdir()} == {part.page.name for part in PARTS}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_page_says_what_it_is_about(part: Part) -> None:
    """The date, the commit, the folders of code with a digest of each, the result in a line, and what it needs."""
    page = pages.read(part)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", page.date)
    assert set(page.digests) == set(part.code)
    assert page.result
    assert (f"> It needs {part.needs}." in page.text) == bool(part.needs)
    assert all((ROOT / path).exists() for path in part.code)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_page_that_is_older_than_its_code_says_so(part: Part) -> None:
    """And no other page does. ``python -m benchmarks --refresh`` states it."""
    page = pages.read(part)
    assert page.changed == pages.changed_since(page)


def test_documents_quote_the_pages_as_they_are() -> None:
    """The table of all pages, and each table of figures; ``python -m benchmarks --refresh`` copies them."""
    assert [path.name for path, text in pages.refreshed() if path.read_text("utf-8") != text] == []


def test_decimals_beside_a_link_to_a_page_stand_in_that_page() -> None:
    """In each paragraph of README and docs that links pages of evidence, outside of copied tables."""
    wrong = []
    for path in pages.documents():
        text = re.sub(r"<!-- (figures|made by).*?<!-- end -->", "", path.read_text("utf-8"), flags=re.DOTALL)
        for paragraph in text.split("\n\n"):
            linked = re.findall(r"results/(\w+)\.md\)", paragraph)
            stated = "".join(pages.read(BY_NAME[name]).text for name in linked)
            if linked:
                decimals = re.findall(r"\b\d+\.\d+\b", paragraph)
                wrong += [f"{path.name}: {one}" for one in decimals if one not in stated]
    assert wrong == []


def test_each_page_is_linked_from_the_documentation() -> None:
    """A page that no reader finds proves nothing."""
    text = "".join(path.read_text("utf-8") for path in pages.documents())
    assert [part.name for part in PARTS if f"results/{part.name}.md)" not in text] == []


@pytest.mark.parametrize("part", [part for part in PARTS if part.command], ids=lambda part: part.name)
def test_the_command_of_a_part_starts(part: Part, forking_python: ForkingPython) -> None:
    """Its module is there and knows the options."""
    program, *words = part.command.format(page="page.md", raw="raw.json").split()
    start = [program] if program.endswith(".py") else ["-m", program]
    command = [*forking_python.command, *start, *words, "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert all(word in done.stdout for word in words if word.startswith("--"))


class TestDigest:
    """What makes a page old, and what does not."""

    def test_words_change_nothing(self) -> None:
        """Comments, docstrings of anything, and the layout."""
        code = "class A:\n    x = 1\n    def f(self):\n        return (1, 2)\n"
        words = '"""A."""\nclass A:\n    """A."""\n    x = 1  # one\n    """X."""\n    def f(self):\n        """F."""\n'
        assert python_code(code) == python_code(words + "        return (\n            1, 2)\n")
        assert c_code('int f(void) { return g("// no"); }') == c_code('int f(void) { /* one */ return\n  g("// no"); }')

    @pytest.mark.parametrize("changed", ["x = 2", "y = 1", "x = None", "x = '1'", "x: int = 1", "x = (1,)"])
    def test_code_changes_it(self, changed: str) -> None:
        """A name, a value or a type."""
        assert python_code("x = 1") != python_code(changed)
        assert c_code('g("a");') != c_code('g("b");')

    def test_a_folder_counts_with_the_names_of_its_files(self, tmp_path: Path) -> None:
        """Also of those below; of no other kinds of files."""
        (tmp_path / "room/inner").mkdir(parents=True)
        (tmp_path / "room/inner/a.py").write_text("x = 1")
        before = digest("room", tmp_path)
        (tmp_path / "room/readme.md").write_text("words")
        assert digest("room", tmp_path) == before
        (tmp_path / "room/inner/a.py").rename(tmp_path / "room/b.py")
        assert digest("room", tmp_path) != before
        assert digest("nowhere", tmp_path) == "absent"


MACHINE = {"date": "2026-01-02T03:04", "cpu": "a processor", "cores": 2, "python": "3", "torch": "2", "gpu": None}


def test_an_old_page_states_the_folders_that_changed(tmp_path: Path) -> None:
    """After the code is as it was measured, it states nothing."""
    part = BY_NAME["truth"]
    for path in part.code:
        shutil.copytree(ROOT / path, tmp_path / path, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    head = pages.header(part, MACHINE, "12345678", {path: digest(path) for path in part.code})
    page = pages.Page(pages.with_header("# Truth\n\n**Result**: good\n", head))
    assert (page.date, page.result, pages.changed_since(page, tmp_path)) == ("2026-01-02", "good", [])
    (tmp_path / part.code[0] / "new.py").write_text("x = 1")
    old = pages.Page(pages.stated(page.text, pages.changed_since(page, tmp_path)))
    assert old.changed == [part.code[0]]
    assert "> **Older than the code**: `autoprof/capture` changed since." in old.text
    assert pages.stated(old.text, []) == page.text


def _part(name: str, code: str) -> Part:
    return Part(name, f"{name}?", f"{code} --page {{page}}", ("errors.py",), 1)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the programs of parts, and for what they write."""
    monkeypatch.setattr(command, "BUILD", tmp_path / "build")
    return tmp_path


def test_a_part_that_fails_does_not_stop_the_others(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page of a part is written when its command wrote one, also where a limit is not kept."""
    (programs / "bad.py").write_text("raise SystemExit('broken')")
    write = "import sys; open(sys.argv[2], 'w').write('# Good\\n\\n**Result**: 1\\n'); sys.exit(1)"
    (programs / "good.py").write_text(write)
    parts = [_part("bad", str(programs / "bad.py")), _part("good", str(programs / "good.py"))]
    assert command.run(parts, programs / "pages", quick=False, is_named=True) == 1
    assert [path.name for path in (programs / "pages").iterdir()] == ["good.md"]
    page = pages.Page((programs / "pages/good.md").read_text())
    assert (page.result, list(page.digests)) == ("1", ["autoprof/errors.py"])
    printed = capsys.readouterr().out
    assert "bad              FAILED" in printed
    assert "good             measured" in printed


def test_a_part_whose_needs_are_missing_is_left_out(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That is a failure where the part was asked for by name."""
    part = Part("far", "far?", "nothing", (), 1, packages=("no_such_package",))
    assert command.run([part], programs, quick=False, is_named=False) == 0
    assert command.run([part], programs, quick=False, is_named=True) == 1
    assert "left out: it needs the packages no_such_package" in capsys.readouterr().out


def test_the_release_refuses_old_pages(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that can be measured again without a GPU."""
    changed = {BY_NAME["gpu"].page: ["autoprof/devices"]}
    monkeypatch.setattr(pages, "read", lambda part: part.page)
    monkeypatch.setattr(pages, "changed_since", lambda page: changed.get(page, []))
    assert command.main(["--strict"]) == 0
    changed[BY_NAME["truth"].page] = ["autoprof/capture"]
    assert command.main(["--strict"]) == 1
    assert "truth: autoprof/capture" in capsys.readouterr().out
