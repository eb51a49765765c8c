"""Tests on the simulated accelerator run in a process of their own, one per file.

A process has one such backend for good, and it must be known before the first backward: a process of other tests is
neither. Here each test takes its outcome from the child, which runs the same file.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from simulated_accelerator import Simulated

OUTCOMES: Final = "AUTOPROF_SIMULATED_OUTCOMES"
"""Set in the child: the file that it writes the outcome of each test to."""
KERNEL_NS: Final = 5_000
CHILD_LIMIT_S: Final = 600
TEST_LIMIT_S: Final = 20
"""Added to the limit of the child for each test. Only a child that hangs reaches the limit, also on a slow machine."""
_outcomes: dict[Path, dict[str, dict[str, str]]] = {}


@pytest.fixture(scope="session")
def _accelerator() -> Simulated | None:
    if OUTCOMES not in os.environ:
        return None
    from simulated_accelerator import CannotBuildError, load

    try:
        return load()
    except CannotBuildError as error:
        if "does not compile" in str(error):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def _python(request: pytest.FixtureRequest) -> list[str] | None:
    """The command that starts the child; the child itself starts none."""
    return None if OUTCOMES in os.environ else request.getfixturevalue("forking_python").command


@pytest.fixture
def sim(_accelerator: Simulated, _python: list[str] | None) -> Iterator[Simulated]:
    """Return the accelerator, with kernels of 5 µs; all its work is done when the test ends."""
    yield _accelerator
    if _accelerator is not None:
        _accelerator.set_kernel_ns(KERNEL_NS)
        _accelerator.finish()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Take the outcome of the test from the child; in the child itself, run it."""
    if OUTCOMES in os.environ or "sim" not in pyfuncitem.fixturenames:
        return None
    file = pyfuncitem.path
    if file not in _outcomes:
        items = [item.nodeid for item in pyfuncitem.session.items if item.path == file]
        _outcomes[file] = _run(items, pyfuncitem.config.rootpath, pyfuncitem.funcargs["_python"])
    outcome = _outcomes[file].get(pyfuncitem.nodeid, {"outcome": "failed", "text": _outcomes[file][""]["text"]})
    if outcome["outcome"] == "skipped":
        pytest.skip(outcome["text"].removeprefix("Skipped: "))
    if outcome["outcome"] == "failed":
        pytest.fail(outcome["text"], pytrace=False)
    return True


def _run(items: list[str], root: Path, python: list[str]) -> dict[str, dict[str, str]]:
    """Run tests in a child; return their outcomes by name, and under the empty name the end of its output."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "outcomes.jsonl")
        path.touch()
        environment = {**os.environ, OUTCOMES: str(path), "OMP_NUM_THREADS": "1"}
        for name in [name for name in environment if name.startswith("PYTEST_XDIST")]:
            del environment[name]
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", ""]  # slow ones, too, where they are meant
        command = [*python, "-m", "pytest", *options, *items]
        limit_s = CHILD_LIMIT_S + TEST_LIMIT_S * len(items)
        with open(Path(folder, "output"), "w+", encoding="utf-8", errors="replace") as output:
            try:
                done = subprocess.run(
                    command, env=environment, cwd=root, stdout=output, stderr=output, timeout=limit_s, check=False
                )
                how = f"exit status {done.returncode}"
            except subprocess.TimeoutExpired:  # the tests that have ended keep their outcomes
                how = f"stopped after {limit_s} s"
            output.seek(0)
            tail = f"{how}\n{output.read()[-5000:]}"
        records = [json.loads(line) for line in path.read_text().splitlines()]
    return {"": {"outcome": "failed", "text": tail}, **{record["name"]: record for record in records}}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In the child, write down each test's outcome: of its call, or of what went wrong around it."""
    if OUTCOMES not in os.environ or (report.when != "call" and report.outcome == "passed"):
        return
    skipped: Any = report.longrepr
    text = str(skipped[2]) if report.outcome == "skipped" else report.longreprtext
    with open(os.environ[OUTCOMES], "a", encoding="utf-8") as file:
        file.write(json.dumps({"name": report.nodeid, "outcome": report.outcome, "text": text}) + "\n")
