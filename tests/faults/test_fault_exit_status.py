"""The exit status of a program is its own: every end, every signal, every sink, against the bare program.

Sessions are left open, so they are closed where the interpreter exits. Reports import modules there, and any code that
is executed from a string makes Python forget that Ctrl-C ended the program.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from children import Children

import autoprof
from autoprof.sinks import SINKS


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    """What runs programs in processes of their own."""
    made = Children()
    yield made
    made.close()


DEFAULT = "{'console': {}, 'memory_plot': {}}"
"""Added to the sinks of ``PROGRAM``: those of a configuration without the key ``sinks``."""
RECEIVERS = ("prometheus", "wandb")


def _signal(name: str) -> str:
    return f"os.kill(os.getpid(), signal.{name})"


ENDS = {
    "normal": ("pass", 0),
    "exception": ("raise ValueError('mine')", 1),
    "sys.exit(0)": ("sys.exit(0)", 0),
    "sys.exit(7)": ("sys.exit(7)", 7),
    "os._exit": ("os._exit(9)", 9),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", -signal.SIGINT),
    "a kind of KeyboardInterrupt": (
        "raise type('Mine', (KeyboardInterrupt,), {})",
        -signal.SIGINT if sys.version_info >= (3, 14) else 1,
    ),
    "sys.exit after KeyboardInterrupt": ("try: raise KeyboardInterrupt\nexcept KeyboardInterrupt: sys.exit(7)", 7),
    "KeyboardInterrupt in a thread": (
        "import threading\n"
        "def interrupt(): raise KeyboardInterrupt\n"
        "thread = threading.Thread(target=interrupt)\nthread.start()\nthread.join()",
        0,
    ),
    "SIGINT": (_signal("SIGINT"), -signal.SIGINT),
    "SIGTERM": (_signal("SIGTERM"), -signal.SIGTERM),
    "SIGHUP": (_signal("SIGHUP"), -signal.SIGHUP),
    "SIGABRT": ("os.abort()", -signal.SIGABRT),
    "SIGKILL": (_signal("SIGKILL"), -signal.SIGKILL),
}
"""The event, and the status of a program that it ends."""
COVERING = ("normal", "exception", "sys.exit(7)", "os._exit", "SIGINT", "SIGTERM", "SIGHUP")
"""Each way in which a program ends: by itself, by a status, without its exit functions, by a signal."""
OWN_WAYS = ("KeyboardInterrupt", "a kind of KeyboardInterrupt", "KeyboardInterrupt in a thread")
"""Ends by an exception of which Python or a session keeps a note; the others are like one of these or ``COVERING``."""


def _quick(*ends: str, quick: tuple[str, ...]) -> list[Any]:
    """Return the parameters of a test of these ends; those that are not ``quick`` are left to ``make test-slow``."""
    return [pytest.param(end, marks=[pytest.mark.slow] * (end not in quick)) for end in ends]


@pytest.mark.parametrize("end", _quick(*ENDS, quick=(*COVERING, *OWN_WAYS)))
def test_the_status_of_each_end_is_that_of_the_bare_program(children: Children, end: str, tmp_path: Path) -> None:
    """With the sinks of the default configuration."""
    found = children.run(tmp_path, ENDS[end][0], instrumented=True, sinks=DEFAULT)
    assert found.returncode == ENDS[end][1], found.stderr


FILES = "{" + ", ".join(f"{name!r}: {{}}" for name in SINKS.parts if name not in RECEIVERS) + "}"
"""All sinks that write files, at once: the report of each is made at the exit."""


TRAINING = """
import os, signal, sys
import torch
from torch import nn
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(6):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if i == 3:
{event}
"""
"""What ``autoprof run`` records: a model, its optimizer and the loop, without a word of autoprof."""


@pytest.mark.parametrize("end", _quick(*COVERING, quick=("SIGINT",)))
def test_the_status_of_a_training_under_autoprof_run_is_its_own_with_every_sink(end: str, tmp_path: Path) -> None:
    """The training is recorded, and ends as the bare program does."""
    pytest.importorskip("tensorboard", reason="needs tensorboard")
    event = textwrap.indent(ENDS[end][0], " " * 8)
    (tmp_path / "program.py").write_text(TRAINING.format(event=event))
    (tmp_path / "rules.json").write_text(json.dumps({"sinks": ast.literal_eval(FILES), "flops": "off"}))
    found = subprocess.run(
        [sys.executable, "-m", "autoprof", "run", "--config", "rules.json", "program.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(autoprof.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert found.returncode == ENDS[end][1], found.stderr
    (path,) = (tmp_path / "runs").iterdir()
    assert (path / "run.json").exists()


AT_EXIT = """
if INSTRUMENTED:
    close = Pipeline.close
    def interrupted_close(*arguments):
        for _ in range({times}):
            os.kill(os.getpid(), signal.SIGINT)
        close(*arguments)
    Pipeline.close = interrupted_close
"""


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("end", ["normal", "KeyboardInterrupt", "sys.exit(7)"])
def test_an_interrupt_of_the_report_at_the_exit_is_silent(
    children: Children, end: str, times: int, tmp_path: Path
) -> None:
    """It ends the program as a Ctrl-C at any other moment does, also one that follows another.

    Up to Python 3.13 a status that the program has given stays: a note of an interrupt comes too late for it.
    """
    found = children.run(tmp_path, ENDS[end][0], instrumented=True, before=AT_EXIT.format(times=times), sinks=DEFAULT)
    given = end == "sys.exit(7)" and sys.version_info < (3, 14)
    assert found.returncode == (7 if given else -signal.SIGINT), found.stderr
    assert "Exception ignored" not in found.stderr
    assert "lifecycle" not in found.stderr
