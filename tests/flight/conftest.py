"""Fixtures of the tests of the flight recorder: a folder of its own, no rank."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each test has a folder of its own and no rank."""
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "AUTOPROF"):
        monkeypatch.delenv(name, raising=False)
