"""A probe of another package is attached and detached like built-in ones: the example of docs/extending/probe.md."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from engine_laws import EVERYTHING, Watched, check_laws, count
from torch import nn

from autoprof import Phase
from autoprof.base.plugins import PartKind
from autoprof.probes import ProbeFactory, _base

PAGE = Path(__file__).parents[2] / "docs" / "extending" / "probe.md"
LOAD = numpy.load
FAILING = """
from autoprof.probes import ProbeFactory

class Failing:
    def __init__(self, context):
        self.calls = calls

    def attach(self):
        calls.append("attach")
        raise ValueError("attach")

    def detach(self):
        calls.append("detach")

    def remove(self):
        calls.append("remove")

def fail(context):
    raise ValueError("make")

calls = []
FAILS_TO_ATTACH = ProbeFactory(Failing)
FAILS_TO_BE_MADE = ProbeFactory(fail)
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, entry_points: str) -> None:
    """Install the page's example, and two failing probes, as modules of another package."""
    example = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    (folder / "numpy_load_probe.py").write_text(example[1], encoding="utf-8")
    (folder / "failing_probes.py").write_text(FAILING, encoding="utf-8")
    info = folder / "probes_of_others-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: probes-of-others\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[autoprof.probes]\n{entry_points}\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(_base, "PROBES", PartKind("probe", "autoprof.probes", "PROBE", ProbeFactory))


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """The function is its own again, and the modules are forgotten."""
    yield
    assert numpy.load is LOAD
    for name in ("numpy_load_probe", "failing_probes"):
        sys.modules.pop(name, None)


def step(watched: Watched, model: nn.Module, path: Path) -> None:
    """Read an array in a step."""
    numpy.load(path)
    model(torch.ones(1, 2))
    watched.step()


def test_it_is_attached_in_sampled_steps_and_detached_in_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call in a sampled step is a span; one in an unsampled step reaches no listener."""
    install(tmp_path, monkeypatch, "numpy-load = numpy_load_probe:PROBE")
    numpy.save(tmp_path / "array.npy", numpy.ones(2))
    config: dict[str, Any] = {**EVERYTHING, "sample": {"every": 2, "warmup": 0, "budget": None}}
    model = nn.Linear(2, 2)
    with Watched(model, config=config) as watched:
        listeners = sys.modules["numpy_load_probe"].LOAD.listeners
        held = []
        for _ in range(4):
            held.append(len(listeners))
            step(watched, model, tmp_path / "array.npy")
    frames = watched.sink.frames
    assert held == [1, 0, 1, 0]
    assert [count(frame, Phase.DATA) for frame in frames] == [{"numpy.load": 1}] * 2
    for frame in frames:
        check_laws(frame)
    assert listeners == []


def test_one_that_fails_is_switched_off_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The training continues, and the probe's ``remove`` is called all the same."""
    install(
        tmp_path,
        monkeypatch,
        "attach = failing_probes:FAILS_TO_ATTACH\nmake = failing_probes:FAILS_TO_BE_MADE\n"
        "none = failing_probes:MISSING\nnumpy-load = numpy_load_probe:PROBE",
    )
    numpy.save(tmp_path / "array.npy", numpy.ones(2))
    model = nn.Linear(2, 2)
    with Watched(model) as watched:
        step(watched, model, tmp_path / "array.npy")
        step(watched, model, tmp_path / "array.npy")
    assert watched.session.summary().skipped == {"failures in probe 'attach'": 1}
    assert sys.modules["failing_probes"].calls == ["attach", "remove"]
    assert [count(frame, Phase.DATA) for frame in watched.sink.frames] == [{"numpy.load": 1}] * 2
    messages = [record.getMessage() for record in caplog.records]
    assert "probe 'make' of another package: ValueError: make" in messages
    assert any(message.startswith("probe 'none' of another package: AttributeError") for message in messages)
