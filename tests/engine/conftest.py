"""Every test of the engine starts and ends with nothing of autoprof's in the process."""

import sys
from pathlib import Path

import pytest
from left_behind import nothing_left

from autoprof.base.process import replace

__all__ = ["nothing_left"]


@pytest.fixture
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what other tests have compiled: some calls are seen only in a process that has compiled nothing."""
    monkeypatch.setattr(replace, "_compiled", False)
    if "torch._dynamo.utils" in sys.modules:
        sys.modules["torch._dynamo.utils"].counters.clear()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let torch 2.4 use its own deprecated function: its checkpoint does."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:`torch.cpu.amp.autocast:FutureWarning"))
