"""Fixtures of the tests of deep captures: a folder of its own, no rank, and no profiler left on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Each test has a folder of its own and no rank, and leaves torch's profiler as it was."""
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "AUTOPROF"):
        monkeypatch.delenv(name, raising=False)
    starts = [getattr(torch.autograd.profiler, name) for name in ("_prepare_profiler", "_enable_profiler")]
    yield
    assert not torch.autograd._profiler_enabled()
    assert starts == [getattr(torch.autograd.profiler, name) for name in ("_prepare_profiler", "_enable_profiler")]
