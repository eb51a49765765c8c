"""Hooks in C and hooks in Python: every test of the engine holds for both, those in C where they are built."""

from __future__ import annotations

import pytest

from autoprof._capture.marks import PURE, in_c


@pytest.fixture(autouse=True, params=["c", "python"] if in_c() else ["python"])
def hooks_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have the sessions of a test do the usual path of their hooks in C, or all of it in Python."""
    way: str = request.param
    if way == "python":
        monkeypatch.setenv(PURE, "1")
    else:
        monkeypatch.delenv(PURE, raising=False)
    return way
