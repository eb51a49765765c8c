"""What a test must not leave in the process: open sessions, active recorders, hooks, handlers, a stopped collector."""

import gc
import signal
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from attached import hooks_of, open_sessions, optimizer_hooks
from torch import nn

from autoprof.capture import recorder as recording
from autoprof.capture.hooks.boundary import BoundaryProbe
from autoprof.capture.hooks.module import ModuleProbe
from autoprof.capture.hooks.shapes import ShapeProbe


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Prove that a test leaves no open session, active recorder, hook or signal handler; in its own folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AUTOPROF", raising=False)
    torch.manual_seed(0)
    touched: list[weakref.ref[nn.Module]] = []
    attach, begin = ModuleProbe.attach, BoundaryProbe.__init__

    def note_attach(self: ModuleProbe) -> None:
        if not any(module() is self.module for module in touched[-50:]):
            touched.append(weakref.ref(self.module))
        attach(self)

    def note_boundary(self: BoundaryProbe, module: nn.Module, before: Any) -> None:
        touched.append(weakref.ref(module))
        begin(self, module, before)

    monkeypatch.setattr(ModuleProbe, "attach", note_attach)
    monkeypatch.setattr(BoundaryProbe, "__init__", note_boundary)
    handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    assert recording.active is None
    assert not open_sessions()
    yield
    left = open_sessions()
    for session in left:  # or every test after this one would fail as well
        session.end("forgotten")
    assert not left, "a session is still open"
    assert not open_sessions()
    assert recording.active is None, "a recorder is still active"
    assert not optimizer_hooks()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == handlers, "handlers were not put back"
    assert gc.isenabled(), "the garbage collector is disabled"
    assert not hasattr(nn.Module, "__prepare_scriptable__")
    for module in {id(module): module for ref in touched if (module := ref()) is not None}.values():
        for hooks in hooks_of(module).values():
            for _, hook in hooks:
                owner = getattr(hook, "__self__", None)
                assert not isinstance(owner, (ModuleProbe, BoundaryProbe, ShapeProbe)), f"{module} still has {hook}"
