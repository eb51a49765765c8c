"""How a process ends: with the status it would have had, with whole files, and with a word on how it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
from forking_python import ForkingPython

import autoprof

SCRIPT = """
import os, signal, sys
if {instrumented}:
    import torch
    from torch import nn
    import autoprof

    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
{before}
if {instrumented}:
    session = autoprof.instrument(model, {{
        "targets": [{{"match": ".*"}}], "output": "runs", "sample": {{"warmup": 0}},
        "sinks": {{"jsonl": {{}}, "log": {{}}}},
    }})
for i in range(6):
    if {instrumented}:
        model(torch.ones(1, 2)).sum().backward()
        session.step()
    if i == 4:
        {event}
print("went on")
"""


def run(
    python: ForkingPython, tmp_path: Path, event: str, *, before: str = "", instrumented: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run the script to its end."""
    folder = tmp_path / ("with" if instrumented else "without")
    folder.mkdir()
    code = SCRIPT.format(event=event, before=textwrap.dedent(before), instrumented=instrumented)
    environment = {**os.environ, "PYTHONPATH": str(Path(autoprof.__file__).parents[1])}
    return subprocess.run(
        [*python.command, "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def how_it_ended(tmp_path: Path) -> tuple[str, int]:
    """Return how run.json says the run ended, and the whole records that were written; every file must be whole."""
    (folder,) = (tmp_path / "with" / "runs").iterdir()
    info: dict[str, Any] = json.loads((folder / "run.json").read_text())
    lines = (folder / "rank0" / "steps.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, len(lines) + 1))
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["steps"] == len(lines)
    return info["ended"], len(lines)


ENDS = {
    "exit": ("sys.exit(3)", 3, "exit"),
    "error": ("raise ValueError('mine')", 1, None),
    "sigterm": ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, "SIGTERM"),
    "ctrl-c": ("os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT, None),
    "normal": ("pass", 0, "exit"),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_process_ends_as_it_would_have_without_autoprof(
    name: str, tmp_path: Path, forking_python: ForkingPython
) -> None:
    """Exit, an error, SIGTERM, Ctrl-C, the script's end: same status and output, whole files, and a word on how."""
    event, status, ended = ENDS[name]
    bare = run(forking_python, tmp_path, event, instrumented=False)
    found = run(forking_python, tmp_path, event)
    assert found.returncode == bare.returncode == status
    assert found.stdout == bare.stdout
    assert found.stderr.splitlines()[-1:] == bare.stderr.splitlines()[-1:]
    how, steps = how_it_ended(tmp_path)
    assert steps == (6 if name == "normal" else 5)
    assert how
    if ended is not None:
        assert how == ended


def test_sigterm_in_the_middle_of_a_forward_ends_at_once_with_whole_files(
    tmp_path: Path, forking_python: ForkingPython
) -> None:
    """The signal comes while the model runs."""
    before = """
    class Kill(nn.Module):
        n = 0
        def forward(self, x):
            Kill.n += 1
            if Kill.n == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            return x
    model.append(Kill())
    """
    found = run(forking_python, tmp_path, "pass", before=before)
    assert found.returncode == -signal.SIGTERM
    assert "went on" not in found.stdout
    assert how_it_ended(tmp_path) == ("SIGTERM", 2)


def test_sigterm_in_the_middle_of_our_own_work_waits_for_its_end(tmp_path: Path, forking_python: ForkingPython) -> None:
    """A sink is writing: the file is finished first."""
    before = """
    from autoprof._session.pipeline import Pipeline
    submit = Pipeline.submit
    def submit_and_flush(self, raw):
        submit(self, raw)
        self.flush()
    Pipeline.submit = submit_and_flush
    from autoprof._stats import Aggregate
    add_run = Aggregate.add_run
    def kill(self, run):
        if any(frame.step == 3 for frame in run.frames):
            os.kill(os.getpid(), signal.SIGTERM)
        add_run(self, run)
    Aggregate.add_run = kill
    """
    found = run(forking_python, tmp_path, "pass", before=before)
    assert found.returncode == -signal.SIGTERM
    assert "went on" not in found.stdout
    assert how_it_ended(tmp_path) == ("SIGTERM", 3)


def test_a_sigterm_handler_of_the_users_stays_theirs(tmp_path: Path, forking_python: ForkingPython) -> None:
    """Theirs runs, and the run goes on."""
    before = "signal.signal(signal.SIGTERM, lambda *_: print('mine'))"
    found = run(forking_python, tmp_path, "os.kill(os.getpid(), signal.SIGTERM)", before=before)
    assert found.returncode == 0
    assert found.stdout == "mine\nwent on\n"
    assert how_it_ended(tmp_path) == ("exit", 6)


def test_kill_leaves_files_that_are_valid_to_the_last_whole_line(tmp_path: Path, forking_python: ForkingPython) -> None:
    """Nothing can be done then; what is on disk can be read."""
    found = run(forking_python, tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")
    assert found.returncode == -signal.SIGKILL
    (folder,) = (tmp_path / "with" / "runs").iterdir()
    assert json.loads((folder / "run.json").read_text())["ended"] is None
    text = (folder / "rank0" / "steps.jsonl").read_text()
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            json.loads(line)


def test_a_fork_that_exits_does_not_end_the_parents_run(tmp_path: Path, forking_python: ForkingPython) -> None:
    """``os.fork`` and ``sys.exit`` in the child: one run, the parent's."""
    event = "pid = os.fork()\n        if not pid: sys.exit(0)\n        os.waitpid(pid, 0)"
    found = run(forking_python, tmp_path, event)
    assert found.returncode == 0
    assert found.stdout == "went on\n"
    assert how_it_ended(tmp_path) == ("exit", 6)
