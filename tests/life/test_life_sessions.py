"""Sessions on two threads at once, and modules that are reloaded during one."""

import importlib
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_laws import Watched, check_laws, count, everything
from torch import nn
from waiting import LIMIT_S

from autoprof import Phase
from autoprof.base.process import lifecycle


def mlp() -> nn.Sequential:
    """Return a small model."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))


# Threads.


def test_two_threads_train_two_models_with_two_sessions() -> None:
    """Each in its thread, at once."""
    found: dict[int, list[Any]] = {}
    failures: list[BaseException] = []
    together = threading.Barrier(2)

    def run(number: int) -> None:
        try:
            model = mlp()
            with Watched(model) as watched:
                together.wait(LIMIT_S)
                for _ in range(20):
                    model(torch.ones(1, 2)).sum().backward()
                    watched.step()
                together.wait(LIMIT_S)
            found[number] = watched.sink.frames
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for frames in found.values():
        assert len(frames) == 20
        for frame in frames:
            check_laws(frame)
            assert count(frame, Phase.FORWARD) == {"Sequential": 1, "0": 1, "1": 1, "2": 1}


def test_sessions_of_two_threads_begin_and_end_at_once() -> None:
    """Neither goes through what the other one has."""
    failures: list[BaseException] = []
    together = threading.Barrier(2)

    class Owner:
        def end(self, how: str) -> None:
            """Never called."""

    def run() -> None:
        try:
            modules, owner = [nn.ReLU() for _ in range(50)], Owner()
            together.wait(LIMIT_S)
            for _ in range(2_000):
                lifecycle.claim(owner, modules)
                lifecycle.release(owner)
        except BaseException as error:
            failures.append(error)

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval_s)
    assert not failures


# Modules that are reloaded.

SOURCE = """
import autoprof

@autoprof.timed("Decorated")
def decorated():
    return {value}

def named():
    return {value}

class Holder:
    def method(self):
        return {value}
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of the user's on disk, importable as ``reloaded_target``."""
    path = tmp_path / "reloaded_target.py"
    path.write_text(SOURCE.format(value=1))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # two sources within one second look alike to the cache
    monkeypatch.delitem(sys.modules, "reloaded_target", raising=False)
    return path


def test_a_module_that_is_reloaded_has_its_new_functions_during_the_run_and_after(source: Path) -> None:
    """``@timed`` functions are timed on; those that the configuration names are the new ones, as they are written."""
    module = importlib.import_module("reloaded_target")
    functions = [
        {"path": "reloaded_target:named", "name": "Named"},
        {"path": "reloaded_target:Holder.method", "name": "Method"},
    ]
    with Watched(mlp(), config=everything(functions=functions)) as watched:
        old_class, old_named = module.Holder, module.named
        assert (module.decorated(), module.named(), module.Holder().method()) == (1, 1, 1)
        watched.step()
        source.write_text(SOURCE.format(value=2))
        importlib.reload(module)
        assert (module.decorated(), module.named(), module.Holder().method()) == (2, 2, 2)
        watched.step()
        new_named, new_method = module.named, vars(module.Holder)["method"]
    assert count(watched.sink.frames[0], Phase.USER) == {"Decorated": 1, "Named": 1, "Method": 1}
    assert count(watched.sink.frames[1], Phase.USER) == {"Decorated": 1}
    assert module.named is new_named is not old_named
    assert vars(module.Holder)["method"] is new_method
    assert not hasattr(vars(old_class)["method"], "__wrapped__")
    assert (module.decorated(), module.named(), module.Holder().method()) == (2, 2, 2)
