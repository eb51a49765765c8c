"""Try the installed package: ``try_install.py records [FOLDER]`` or ``try_install.py reads FOLDER``.

``records`` trains a few steps with the extension in C and reads the run back. ``reads`` is for an installation without
the extension: it has to refuse a recording in one sentence, and to read the run that is below the folder.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import autoprof
from autoprof.capture.marks.native import extension

PHASES = {"forward", "backward", "optimizer"}


def make_model() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Return a small model and its optimizer."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def record(folder: Path) -> None:
    """Record a training below the folder. Raises ``SessionError`` without the extension."""
    model, optimizer = make_model()
    session = autoprof.instrument(model, {"output": str(folder), "sinks": {"jsonl": {}}}, optimizer=optimizer)
    for _ in range(8):
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        session.step()
    session.close()


def read(folder: Path) -> None:
    """Read the one run below the folder, and look for all phases of a step in it."""
    [run_folder] = [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    run = autoprof.read_run(run_folder)
    assert run.summary is not None
    phases = {row.phase.value for row in run.summary.rows}
    assert phases >= PHASES, phases


def try_records(folder: Path) -> None:
    """The extension is there, and a training is recorded."""
    assert extension is not None, "the extension in C is missing"
    record(folder)
    read(folder)


def try_listens(packages: Path) -> None:
    """The line beside the package starts the listener where the environment asks for it, and nothing elsewhere."""
    program = (
        f"import site, sys, threading; site.addsitedir({str(packages)!r});"
        "print([one.name for one in threading.enumerate()], 'autoprof' in sys.modules)"
    )
    for wish, shown in (("1", "['MainThread', 'autoprof-listener'] True"), ("0", "['MainThread'] False")):
        command = [sys.executable, "-S", "-c", program]
        environment = {**os.environ, "AUTOPROF_ATTACH": wish}
        printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert printed.stdout.strip() == shown, f"the listener: {printed.stdout}{printed.stderr}"


def try_reads(folder: Path) -> None:
    """Without the extension a recording is refused in one sentence; a run is read."""
    assert extension is None, "the extension in C is there: this installation found a compiler"
    try:
        record(folder)
    except autoprof.SessionError as error:
        [sentence] = str(error).splitlines()
        assert "extension in C" in sentence, sentence
    else:
        raise AssertionError("instrument recorded without the extension in C")
    read(folder)


def main() -> None:
    """Try what is asked for. Raises ``AssertionError`` with the reason where the installation is not right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("promise", choices=["records", "reads"])
    parser.add_argument("folder", nargs="?", type=Path, help="of runs (default: one that is removed)")
    options = parser.parse_args()
    installed = Path(autoprof.__file__)
    assert "site-packages" in installed.parts, f"not the installed package: {installed}"
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "runs"
        (try_records if options.promise == "records" else try_reads)(folder)
    try_listens(installed.parents[1])


if __name__ == "__main__":
    main()
