"""Fixtures of the tests of ``autoprof compare``."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_switch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each test has a folder of its own, 80 columns, and nothing in the environment that switches autoprof off."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("AUTOPROF", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
