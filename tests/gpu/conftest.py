"""Tests that need a CUDA device: collected everywhere, run where there is one."""

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked ``gpu`` where torch sees no CUDA device."""
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a GPU: `make gpu` runs it on one")
    for item in items:
        if item.get_closest_marker("gpu") is not None:
            item.add_marker(skip)
