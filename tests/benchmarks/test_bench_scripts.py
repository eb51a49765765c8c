"""The page of other projects' scripts: wrong counts are marked, and scripts without a result are named."""

import re
import struct
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.random import default_rng

from benchmarks.scripts.prepare import DATA, clone
from benchmarks.scripts.registry import SCRIPTS
from benchmarks.scripts.report import is_right, page

ONE = SCRIPTS[0]


def result(found: int) -> dict[str, Any]:
    """Return the result of a script with 61 steps of its own."""
    run = {"steps": found, "overhead": 0.01, "findings": [], "longest": None}
    return {"counted": [[61]], "runs": [run]}


def test_the_page_counts_what_is_right() -> None:
    """Steps that were not found make a script wrong."""
    good, bad = ("\n".join(page({ONE.name: result(found)})) for found in (61, 60))
    assert "steps are right in 1 of 1 scripts" in good
    assert f"| {ONE.name} | 61 → 61 | 1.0 % |" in good
    assert f"| {ONE.name} | 61 → 60 **wrong** |" in bad
    assert f"{SCRIPTS[1].name} (not run)" in good


def test_a_script_without_a_run_is_not_right() -> None:
    """An error is no result."""
    assert not is_right(ONE, {"error": "no checkout"})


def test_the_data_of_each_script_is_made() -> None:
    """Each folder of ``{data}`` that a script names, and no folder of a repository that is not cloned."""
    named = {name for script in SCRIPTS for name in re.findall(r"\{data\}/(\w+)", f"{script.command} {script.folder}")}
    assert {f"data/{name}" for name in named} <= set(DATA)
    assert {Path(place).parts[0] for place in DATA} <= {"data", *(script.checkout for script in SCRIPTS)}


def test_made_data_are_the_same_each_time(tmp_path: Path) -> None:
    """The seed is fixed; images and labels have the header of MNIST's files."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        DATA["data/MNIST/raw"](tmp_path / name, default_rng(0))
    made = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert made == {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()}
    assert made["train-images-idx3-ubyte"][:16] == struct.pack(">4i", 2051, 4_096, 28, 28)
    assert made["train-labels-idx1-ubyte"][:8] == struct.pack(">2i", 2049, 4_096)


def test_a_repository_is_cloned_at_its_commit(tmp_path: Path) -> None:
    """From the place where ``source`` has it; a second call checks the commit out again."""

    def git(*arguments: str) -> str:
        person = ("-c", "user.name=a", "-c", "user.email=a@b")
        command = ["git", "-C", str(tmp_path / "owner+name"), *person, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    (tmp_path / "owner+name").mkdir()
    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message=first")
    script = replace(ONE, repository="owner/name", commit=git("rev-parse", "--short", "HEAD"))
    git("commit", "--quiet", "--allow-empty", "--message=second")
    for _ in range(2):
        clone(script, tmp_path / "name", f"{tmp_path}/{{owner}}+{{name}}")
    assert (tmp_path / "name" / ".git" / "HEAD").read_text().startswith(script.commit)
