"""Programs in processes of their own, bare and instrumented, and what is left of them."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waiting import LIMIT_S

import autoprof

PROGRAM = """
import os, resource, shutil, signal, sys
import torch
from torch import nn
INSTRUMENTED = {instrumented}
if INSTRUMENTED:
    import autoprof
    from autoprof.session.pipeline import Pipeline
    submit = Pipeline.submit
    def submit_and_flush(self, raw):
        submit(self, raw)
        self.flush()
    Pipeline.submit = submit_and_flush
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
{before}
session = None
if INSTRUMENTED:
    session = autoprof.instrument(model, {{
        "targets": [{{"match": ".*"}}], "output": "runs", "sample": {{"warmup": 0, "budget": None}}, "flops": "off",
        "sinks": {{"jsonl": {{"flush_s": 0}}, "log": {{}}, **{sinks}}},
    }})
def step(i):
    loss = model(torch.ones(1, 2)).sum()
    loss.backward()
    model.zero_grad()
    if session is not None:
        session.step()
for i in range(6):
    step(i)
    if i == 3:
{event}
{after}
print("went on")
"""


SERVER = """
import gc, json, os, signal, sys
import torch, autoprof, autoprof.config, autoprof.base.storage.runs, autoprof.sinks, autoprof.targets
import autoprof.session.builder  # what a session imports at its end is imported in the child
torch.set_num_threads(1)
gc.collect()
gc.freeze()  # a collection in a child would walk, and so copy, all that is imported
for line in sys.stdin:
    request = json.loads(line)
    pid = os.fork()
    if not pid:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
else:
    sys.exit(0)
signal.alarm(int(sys.argv[1]))  # a program that hangs dies of it, and the test fails
os.chdir(request["folder"])
for number, path, mode in ((0, os.devnull, os.O_RDONLY), (1, "out", os.O_RDWR), (2, "err", os.O_RDWR)):
    os.dup2(os.open(path, mode | os.O_CREAT | os.O_TRUNC, 0o644), number)
exec(compile(request["code"], "<program>", "exec"), {"__name__": "__main__"})
"""
"""Fork for each program: torch is imported once, and a program still ends as a process of its own does."""


@dataclass(frozen=True)
class Ended:
    """How a program ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


class Children:
    """Run programs one after another."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(LIMIT_S)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(autoprof.__file__).parents[1])},
        )

    def close(self) -> None:
        """End the server."""
        self._server.communicate(timeout=LIMIT_S)

    def run(
        self, folder: Path, event: str, *, instrumented: bool, before: str = "", after: str = "", sinks: str = "{}"
    ) -> Ended:
        """Run the program in ``folder`` to its end: six steps, the event after the fourth."""
        folder.mkdir(exist_ok=True)
        code = PROGRAM.format(
            instrumented=instrumented,
            before=textwrap.dedent(before),
            event=textwrap.indent(textwrap.dedent(event), " " * 8),
            after=textwrap.dedent(after),
            sinks=sinks,
        )
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps({"folder": str(folder), "code": code}), file=self._server.stdin, flush=True)
        status = int(self._server.stdout.readline())
        assert status != -signal.SIGALRM, f"the program has not ended after {LIMIT_S} s"
        return Ended(status, (folder / "out").read_text(), (folder / "err").read_text())

    def both(self, tmp_path: Path, event: str, **more: Any) -> tuple[Ended, Ended]:
        """Run it bare and instrumented; return both."""
        return (
            self.run(tmp_path / "bare", event, instrumented=False, **more),
            self.run(tmp_path / "with", event, instrumented=True, **more),
        )


def ends_alike(bare: Ended, found: Ended) -> None:
    """Assert that both ended with one status, printed the same, and died of the same error, if of one."""
    assert found.returncode == bare.returncode, found.stderr
    assert found.stdout == bare.stdout
    if bare.stderr:
        assert found.stderr.splitlines()[-1:] == bare.stderr.splitlines()[-1:]
    else:
        assert "Traceback" not in found.stderr
        assert "Exception ignored" not in found.stderr


def saved(folder: Path) -> tuple[dict[str, Any], list[int]]:
    """Return ``run.json`` and the steps of the run below ``folder``; each line of its records is whole."""
    (path,) = (folder / "runs").iterdir()
    text = (path / "rank0" / "steps.jsonl").read_text()
    assert not text or text.endswith("\n")
    run = autoprof.read_run(path)
    frames = run.frames
    steps = [frame.step for frame in frames]
    assert frames.bad_lines == 0
    if run.summary is not None:
        assert run.summary.steps + run.summary.warmup_steps >= len(steps)
    return json.loads((path / "run.json").read_text()), steps
