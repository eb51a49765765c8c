"""The programs in ``examples/`` run as their docstrings say."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from forking_python import ForkingPython

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = sorted((ROOT / "examples").glob("*.py"))
PRINTED = {
    "first_run": "Verdict",
    "slow_loader": "data-wait",
    "slow_training": r"epoch 2, step 39: accuracy 0\.\d\d",
    "name_the_parts": r"Encoder/Block\d +backward",
    "read_a_run": r"step  20: +\d",
    "own_sink": r"the slowest:\n  step 18: ",
    "several_ranks": "records of 2 ranks: ",
}
"""A regular expression for each program's output."""


def _command(program: Path, python: list[str]) -> list[str]:
    """The command of the docstring, with this Python."""
    line = next(line.strip() for line in program.read_text("utf-8").splitlines() if f"examples/{program.name}" in line)
    launcher, *arguments = line.split()
    arguments[-1] = str(program)
    module = {"python": [], "torchrun": ["-m", "torch.distributed.run"]}[launcher]
    return [*python, *module, *arguments]


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.stem for program in PROGRAMS])
def test_an_example_runs(program: Path, tmp_path: Path, forking_python: ForkingPython) -> None:
    """It ends without an error and prints its result."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
    command = _command(program, forking_python.command)
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(PRINTED[program.stem], done.stdout), done.stdout


def test_every_example_is_in_the_list() -> None:
    """``examples/README.md`` names each program."""
    page = (ROOT / "examples" / "README.md").read_text("utf-8")
    assert set(re.findall(r"\]\((\w+\.py)\)", page)) == {program.name for program in PROGRAMS}
