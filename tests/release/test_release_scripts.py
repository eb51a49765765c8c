"""The scripts of ``.ci`` and the targets of the Makefile start: none of them can rot unseen until a release."""

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path

import pytest
from forking_python import ForkingPython

import autoprof

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / ".ci").glob("*.py"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
[PHONY] = re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
MAKE = shutil.which("make") or pytest.skip("needs make", allow_module_level=True)


@cache
def plan(target: str) -> list[list[str]]:
    """Return the commands of a target, as words, with those of the targets that it needs; nothing is run."""
    command = [MAKE, "--dry-run", "--always-make", "--no-print-directory", target, f"PYTHON={sys.executable}"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines]


def programs(words: list[str]) -> Iterator[str]:
    """Return the modules and scripts that a command has Python run."""
    for at, word in enumerate(words):
        if Path(word).name.startswith("python") and at + 1 < len(words):
            options = words[at + 1 :]
            if options[0] == "-X":
                options = options[2:]
            if options[0] == "-m":
                yield options[1]
            elif options[0].endswith(".py"):
                yield options[0]


PROGRAMS = sorted({program for target in PHONY.split() for words in plan(target) for program in programs(words)})


WITHOUT_OPTIONS = {
    "docs.api",
    "docs.blocks",
    "docs.figures",
    "docs.pictures",
    "docs.rules",
    "tests/extension/build_extension.py",
    "tests/extension/extension_alone.py",
}
"""Programs that begin their work whatever the arguments are: importing them has to be enough."""


def source_of(program: str) -> Path | None:
    """Return the file of a program of this repository, None for an installed module. Fails where there is none."""
    if program.endswith(".py"):
        return ROOT / program
    path = ROOT / program.replace(".", "/")
    found = next((one for one in (path.with_suffix(".py"), path / "__main__.py") if one.exists()), None)
    # Not by ``find_spec`` of importlib.util: setuptools replaces distutils for good once ``pip`` is looked for.
    if found is None and PathFinder.find_spec(program.partition(".")[0]) is None:
        extras = "".join(requirements_of(extra) for extra in extras_of(program))
        assert re.search(rf'^ +"{program}\b', extras, re.MULTILINE), f"python -m {program}: no such module"
    return found


def extras_of(program: str) -> set[str]:
    """Return the names of the extras that the targets with a program install before it."""
    plans = [plan(target) for target in PHONY.split()]
    using = [steps for steps in plans if any(program in programs(words) for words in steps)]
    installs = [word for steps in using for words in steps for word in words if word.startswith(".[")]
    return {extra for word in installs for extra in word[2:-1].split(",")}


def requirements_of(extra: str) -> str:
    """Return the lines of an extra in pyproject.toml."""
    found = re.search(
        rf"^{extra} = \[\n(.*?)^\]", (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert found, extra
    return found[1]


OWN = [program for program in PROGRAMS if source_of(program) is not None]
"""The programs of this repository that a target starts."""


def test_programs_without_options_are_started_by_targets() -> None:
    """The list has no program that is gone."""
    assert set(OWN) >= WITHOUT_OPTIONS


def test_every_target_is_declared() -> None:
    """A rule that makes no file is in ``.PHONY``, and the other way round."""
    rules = re.findall(r"^([a-z][a-z0-9-]*):", MAKEFILE, re.MULTILINE)
    assert sorted(rules) == sorted({*PHONY.split(), "help"})


def test_every_target_is_explained() -> None:
    """``make help`` names each target but itself."""
    ended = subprocess.run([MAKE, "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert [target for target in PHONY.split() if f"make {target}" not in ended.stdout] == ["clean"]


@pytest.mark.parametrize("target", PHONY.split())
def test_a_target_finds_its_files(target: str) -> None:
    """Each module and script that a recipe starts is there."""
    for words in plan(target):
        for program in programs(words):
            source = source_of(program)
            assert source is None or source.is_file(), program


@pytest.mark.parametrize("program", sorted(WITHOUT_OPTIONS))
def test_a_program_of_a_target_finds_its_imports(program: str, forking_python: ForkingPython) -> None:
    """All that a program imports at its start is there, or is brought by an extra that its target installs."""
    code = f"import runpy; runpy.run_path({program!r}, run_name='imported')"
    if not program.endswith(".py"):
        code = f"import {program}.__main__" if source_of(program).name == "__main__.py" else f"import {program}"
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [*forking_python.command, "-c", code]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=settings)
    missing = re.search(r"^ModuleNotFoundError: No module named '(\w+)'", ended.stderr, re.MULTILINE)
    if missing:
        extras = "".join(requirements_of(extra) for extra in extras_of(program))
        assert f'"{missing[1]}>=' in extras, f"{program} imports {missing[1]}, which its target does not install"
    else:
        assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    "program", [one for one in OWN if one not in WITHOUT_OPTIONS and not one.startswith(".ci/") and one != "setup.py"]
)
def test_a_program_of_a_target_explains_its_options(program: str, forking_python: ForkingPython) -> None:
    """``--help`` answers, so the way from the command line to the options is whole."""
    command = [*forking_python.command, *([] if program.endswith(".py") else ["-m"]), program, "--help"]
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=settings)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("usage: ")


LISTENER = "autoprof_listener.pth"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_of_ci_answers(script: Path, tmp_path: Path, forking_python: ForkingPython) -> None:
    """Its imports are found, and ``--help`` says how it is called."""
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [*forking_python.command, str(script), "--help"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=settings)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"usage: {script.name}")


def test_ci_runs_the_command_of_the_readme() -> None:
    """``.ci/run`` is a program of bash, whose target is there."""
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], check=False).returncode == 0
    assert set(re.findall(r"^make (\S+)", text, re.MULTILINE)) <= set(PHONY.split())


def test_the_trials_of_an_installation_tell_with_an_extension_from_without(
    tmp_path: Path, forking_python: ForkingPython
) -> None:
    """A training is recorded with it, refused without it, and then read; neither trial accepts the other's place."""
    package, runs = Path(autoprof.__file__).parent, tmp_path / "runs"
    complete, without = (tmp_path / name / "site-packages" for name in ("complete", "without"))
    complete.mkdir(parents=True)
    (complete / "autoprof").symlink_to(package)
    unwanted = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(package, without / "autoprof", ignore=unwanted, copy_function=os.symlink)
    for packages in (complete, without):
        (packages / LISTENER).symlink_to(ROOT / LISTENER)

    def trial(packages: Path, promise: str) -> subprocess.CompletedProcess[str]:
        command = [*forking_python.command, str(ROOT / ".ci" / "try_install.py"), promise, str(runs)]
        settings = {**os.environ, "PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=settings)

    for packages, promise in ((complete, "records"), (without, "reads")):
        ended = trial(packages, promise)
        assert ended.returncode == 0, ended.stderr
    assert "AssertionError: the extension in C is there" in trial(complete, "reads").stderr
    assert "AssertionError: the extension in C is missing" in trial(without, "records").stderr


def test_an_interpreter_that_does_not_start_is_not_found(tmp_path: Path) -> None:
    """A shim of pyenv is on the path and fails; a free-threaded interpreter answers and is no use either."""
    names = {"shim": "exit 127", "freethreaded": "echo 1", "usable": "echo 0"}
    for name, line in names.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        program.chmod(0o755)
    dist = runpy.run_path(str(ROOT / ".ci" / "dist.py"))
    reasons = [dist["missing_because"](str(tmp_path / name)) for name in [*names, "absent"]]
    assert reasons == [
        "does not start (status 127)",
        "free-threaded, which autoprof does not support",
        None,
        "not found",
    ]
