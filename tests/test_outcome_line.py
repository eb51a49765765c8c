"""The last line of a run of the tests, and the reasons of skipped tests, which it is made of."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from outcome_line import NEEDS, describe_outcome

TESTS = Path(__file__).parent
HANDED_ON = {"simulated/conftest.py"}
"""Files whose reasons are those of another error or of another process."""
SUITE = """
import pytest

def test_that_passes(): pass

@pytest.mark.parametrize("number", range(3))
def test_of_a_gpu(number): pytest.skip("needs a GPU: `make gpu` runs it")

@pytest.mark.skip(reason="needs transformers")
def test_of_a_framework(): pass
"""
PACKAGE = """
import pytest
pytest.skip("needs transformers", allow_module_level=True)
"""


def skipped(*reasons: str) -> list[Any]:
    """Return reports of tests that were skipped for these reasons."""
    return [SimpleNamespace(longrepr=("test_it.py", 1, f"Skipped: {reason}")) for reason in reasons]


@pytest.mark.parametrize(
    ("stats", "line"),
    [
        ({}, ""),
        ({"passed": [0] * 3412}, "3,412 passed"),
        ({"passed": [0], "skipped": skipped("needs a GPU: `make gpu` runs it")}, "1 passed; 1 skipped: 1 needs a GPU"),
        (
            {"failed": [0], "error": [0, 0], "passed": [0], "xfailed": [0]},
            "1 failed; 2 had an error; 2 passed",
        ),
        (
            {"skipped": skipped("needs B", "needs A: by far", "unclear", "needs A")},
            "0 passed; 4 skipped: 2 need A, 1 needs B, 1 for another reason",
        ),
    ],
    ids=["nothing", "all passed", "skipped", "failed", "several parts"],
)
def test_the_line_says_what_happened(stats: dict[str, Any], line: str) -> None:
    """Failures first, then the number of tests for each missing part."""
    assert describe_outcome(stats) == line


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_run_ends_with_the_line(workers: str, tmp_path: Path) -> None:
    """With workers too: a file that is skipped as a whole counts once, and no skipped test is listed."""
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text("utf-8"), "utf-8")
    (tmp_path / "test_suite.py").write_text(SUITE, "utf-8")
    (tmp_path / "test_package.py").write_text(PACKAGE, "utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--numprocesses", workers, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "1 passed; 5 skipped: 3 need a GPU, 2 need transformers"
    assert "SKIPPED" not in done.stdout


def reasons_in(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the reason of each skip of a file; of an f-string, its beginning; else an empty one."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if called not in ("pytest.skip", "pytest.importorskip", "pytest.mark.skip", "pytest.mark.skipif"):
            continue
        assert isinstance(node, ast.Call)
        named = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
        reason: Any = (named or (node.args if called == "pytest.skip" else None) or [None])[0]
        if isinstance(reason, ast.JoinedStr):
            reason = reason.values[0]
        yield node.lineno, str(reason.value) if isinstance(reason, ast.Constant) else ""


def test_each_reason_to_skip_names_the_missing_part() -> None:
    """It begins with "needs"; then the line can say which part each test is skipped for."""
    found, seen = [], 0
    for path in sorted(TESTS.rglob("*.py")):
        place = path.relative_to(TESTS).as_posix()
        for line, reason in reasons_in(path):
            seen += 1
            if not reason.startswith(NEEDS) and place not in HANDED_ON:
                found.append(f"tests/{place}:{line}: {reason!r}")
    assert seen > 20
    assert not found, "\n".join(found)
