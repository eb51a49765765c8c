"""Loader workers, forked and spawned: inert, and the parent's run is none the wiser."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from life_workers import EVERY_MODULE, Spy, build
from torch import nn
from torch.utils.data import DataLoader

import autoprof
from autoprof import Phase
from autoprof.base.process import lifecycle

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_two_workers_record_nothing_and_touch_no_file(context: str, tmp_path: Path) -> None:
    """The data set holds the instrumented model, calls it, and has spans of its own: none of it is recorded."""
    model = build()
    data = Spy(model)
    with torch.no_grad():
        expected = [model(data[i]["input"].unsqueeze(0))[0] for i in range(4)]
    config = {**EVERY_MODULE, "sinks": {"jsonl": {}, "log": {}}, "output": str(tmp_path / "runs")}
    with autoprof.instrument(model, config) as session:
        loader = DataLoader(data, num_workers=2, batch_size=None, multiprocessing_context=context)
        seen: list[dict[str, Any]] = []
        for item in session.loader(loader):
            seen.append(item)
            model(item["input"].unsqueeze(0)).sum().backward()
            session.step()
        assert session.folder is not None
        assert json.loads((session.folder / "run.json").read_text())["ended"] is None
    assert len({item["pid"] for item in seen} | {os.getpid()}) == 3
    assert not any(item["recording"] or item["open"] or item["sigterm"] for item in seen)
    assert all(torch.equal(item["output"], output) for item, output in zip(seen, expected, strict=True))
    frames = list(autoprof.read_run(session.folder).frames)
    assert [frame.step for frame in frames] == [1, 2, 3, 4]
    names = {(span.name, span.phase) for frame in frames for span in frame.spans}
    assert ("Data", Phase.DATA) in names
    assert not names & {("Prepare", Phase.USER), ("In a worker", Phase.USER)}
    assert sorted(path.name for path in session.folder.rglob("*.*")) == [
        "run.json", "spans.bin", "steps.jsonl", "summary.json", "summary.txt", "timing.log",
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["exit", "error", "sigterm"])
def test_a_fork_of_the_users_ends_as_it_would_have(how: str, tmp_path: Path) -> None:
    """Its exit status is its own, SIGTERM ends it at once, and the parent's session is still open."""
    model = nn.Linear(2, 2)
    with autoprof.instrument(model, {**EVERY_MODULE, "sinks": {"jsonl": {}}, "output": str(tmp_path)}) as session:
        pid = os.fork()
        if not pid:
            if how == "sigterm":
                os.kill(os.getpid(), signal.SIGTERM)  # does not return
            os._exit(3 if how == "exit" else 1)
        _, status = os.waitpid(pid, 0)
        assert signal.getsignal(signal.SIGTERM) is lifecycle._on_sigterm
        session.step()
    expected = {"exit": 3, "error": 1, "sigterm": -signal.SIGTERM}[how]
    assert os.waitstatus_to_exitcode(status) == expected
    assert len(list(autoprof.read_run(session.folder).frames)) == 1


def test_a_fork_may_open_a_session_of_its_own() -> None:
    """On the very model that its parent's session owns."""
    model = nn.Linear(2, 2)
    with autoprof.instrument(model, EVERY_MODULE):
        pid = os.fork()
        if not pid:
            status = 1
            try:
                with autoprof.instrument(model, EVERY_MODULE) as own:
                    model(torch.ones(1, 2))
                    own.step()
                    status = 0 if own.summary().rows[0].calls == 1 else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_session_opens_where_torch_runs_no_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a fork of a process whose autograd used several threads; the forward is timed as ever."""

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError("Unable to handle autograd's threading in combination with fork-based multiprocessing.")

    monkeypatch.setattr(torch.autograd, "backward", refuse)
    model = nn.Linear(2, 2)
    with autoprof.instrument(model, EVERY_MODULE) as session:
        model(torch.ones(1, 2))
        session.step()
    assert session.summary().rows[0].calls == 1
