"""Every code block of the documentation runs, or says why not."""

import importlib.util
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from forking_python import ForkingPython

from autoprof.frontends.cli import COMMANDS, make_parser
from autoprof.sinks import parse_config
from docs.blocks import ROOT, Block, Folder, blocks_of, needs_runs, part_of, runs_here, sample_runs

GENERATED = {"api.md"}
"""The page that a command writes, with its own test."""
CHECKED_ELSEWHERE = {
    "configuration.md": "tests/config/test_config_page.py",
    "frameworks.md": "tests/integrations/test_integration_docs.py",
}
"""Pages all of whose blocks another test uses."""
PAGES = [
    page
    for page in (
        *(
            ROOT / name
            for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "examples/README.md")
        ),
        *sorted((ROOT / "docs").rglob("*.md")),
        ROOT / "autoprof/frontends/cli/skill.md",
    )
    if page.name not in GENERATED and page.name not in CHECKED_ELSEWHERE
]
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
SLOW = {"zh.md", "loader.md", "memory-growth.md", "slow-module.md", "slow-steps.md", "ci.md"}
"""Pages that train for 5 to 40 seconds, or that prove a difference of times, which a busy machine hides:
``make test-slow`` runs them, and so does ``make pages``."""
RUNNABLE = {"python", "console", "diff"}
LANGUAGES = RUNNABLE | {"text", "yaml", "toml", "json", "mermaid"}
SHELL = {"pip", "git", "cd", "cp", "make", "python", "autoprof", "torchrun", "head", "grep", "cat", "ls", "shtab"}
SAME_WORDS = 0.6
"""The part of a documented output's first words that the test's run prints: rows of a report vary with the machine."""


def _is_skipped(block: Block) -> bool:
    return "not run" in block.notes or "tested by" in block.notes


@pytest.mark.parametrize(("page", "test"), CHECKED_ELSEWHERE.items())
def test_a_page_that_is_checked_elsewhere_is(page: str, test: str) -> None:
    """The test reads the page."""
    assert page in (ROOT / test).read_text("utf-8")


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_is_of_a_kind_that_is_checked(block: Block) -> None:
    """A block has a language; text is an output or a file; a block that is not run has a reason."""
    assert block.language in LANGUAGES, "a fence without a language"
    if block.language == "text":
        assert {"output", "file", "not run", "tested by"} & set(block.notes), "text that no block prints"
    assert len(block.notes.get("not run", "a reason is there")) > 10
    if "tested by" in block.notes:
        name = block.page.name
        assert name in (ROOT / block.notes["tested by"]).read_text("utf-8"), f"the test does not read {name}"


@pytest.mark.parametrize(
    "block", [one for one in BLOCKS if one.language in ("yaml", "toml", "json") and not _is_skipped(one)], ids=str
)
def test_a_block_of_data_is_read(block: Block) -> None:
    """YAML is a configuration, TOML and JSON are valid."""
    if block.language == "yaml":
        assert parse_config(block.text) is not None
    elif block.language == "json":
        assert json.loads(block.text)
    elif sys.version_info >= (3, 11):
        import tomllib

        assert tomllib.loads(block.text)


def _status(words: list[str]) -> object:
    """Return 0 if the command line is understood, as for ``--help``."""
    try:
        make_parser(words[0]).parse_args(words)
    except SystemExit as ended:
        return ended.code or 0
    return 0


def _commands() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        text = page.read_text("utf-8")
        inline = re.findall(r"(?<!`)`(autoprof [^`\n]*)`(?!`)", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S))
        blocks = [command for block in blocks_of(page) if block.language == "console" for command in block.commands()]
        found += [(str(page.relative_to(ROOT)), command) for command in (*inline, *blocks)]
    return found


@pytest.mark.parametrize(("page", "command"), _commands())
def test_a_command_is_understood(page: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands, options, targets of make, extras and modules exist, in sentences and in blocks that are not run."""
    assert page
    for part in re.split(r" (?:&&|\|) ", command):
        words = shlex.split(part.replace("<this repository>", "URL"), comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            del words[0]
        words = words[: words.index(">")] if ">" in words else words
        if not words:
            continue
        if "autoprof" in words[:6] and words[0] in ("torchrun", "python", "accelerate", "deepspeed"):
            continue
        assert words[0] in SHELL, f"no test knows {words[0]}"
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text("utf-8"), re.M)
        elif words[0] == "pip":
            extras = [extra for name in re.findall(r"\[(.*?)\]", part) for extra in name.split(",")]
            project = (ROOT / "pyproject.toml").read_text("utf-8")
            assert all(re.search(rf"^{extra} = \[", project, re.M) for extra in extras)
        elif words[:2] == ["python", "-m"]:
            assert importlib.util.find_spec(words[2])
        elif words[0] == "python":
            assert (ROOT / words[1]).exists() or words[1] == "train.py" or words[1].startswith(".")
        elif words[0] == "autoprof" and len(words) > 1 and not re.search(r"…|\bCOMMAND\b|\bSHELL\b|--OPTION", part):
            assert words[1] in COMMANDS
            if len(words) > 2:
                assert _status(words[1:]) == 0, capsys.readouterr().err


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, forking_python: ForkingPython) -> Path:
    """The folder of six short runs."""
    return sample_runs(tmp_path_factory.mktemp("sample"), forking_python.command)


def _first_words(text: str) -> set[str]:
    """Return the words at the begin of lines, without numbers and paths."""
    return set(re.findall(r"^[A-Za-z][A-Za-z()]*\b(?=[ :]|$)", text, re.M))


def _check_output(block: Block, documented: str, real: str) -> None:
    words = _first_words(documented)
    same = words & _first_words(real)
    assert len(same) >= SAME_WORDS * len(words), f"{block}: only {sorted(same)} of {sorted(words)} are in:\n{real}"
    assert bool(documented.strip()) <= bool(real.strip()), f"{block}: nothing was printed"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=str(page.relative_to(ROOT)), marks=[pytest.mark.slow] * (page.name in SLOW))
        for page in PAGES
        if any(one.language in RUNNABLE and not _is_skipped(one) for one in blocks_of(page))
    ],
)
def test_the_blocks_of_a_page_run(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest, forking_python: ForkingPython
) -> None:
    """One after another in a folder of their own, each with the documented exit status and kind of output.

    The training of the page's folder has one epoch, of half as many images.
    """
    runs = request.getfixturevalue("runs") if needs_runs(page) else None
    folder = Folder(tmp_path / "page", runs, epochs=1, python=forking_python.command)
    script = folder.path / "train.py"
    script.write_text(script.read_text("utf-8").replace("return self.count\n", "return self.count // 2\n"), "utf-8")
    printed = ""
    for block in blocks_of(page):
        if "output" in block.notes:
            _check_output(block, block.text, printed)
        elif not _is_skipped(block) and (block.language in RUNNABLE or "file" in block.notes):
            outputs = list(folder.run(block))
            printed = outputs[-1] if outputs else printed
            for command, documented, real in zip(block.commands(), block.outputs(), outputs, strict=False):
                if runs_here(command):
                    _check_output(block, documented, part_of(real, block.notes) or real)
