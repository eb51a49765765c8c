"""Fixtures of the tests of FLOP counts."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let torch 2.4 use its own deprecated function: its checkpoint does."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:`torch.cpu.amp.autocast:FutureWarning"))
