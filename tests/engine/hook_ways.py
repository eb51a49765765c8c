"""Hooks in C and hooks in Python: every test of the engine holds for both, those in C where they are built."""

from __future__ import annotations

import pytest

from autoprof._capture.marks.native import PURE_VARIABLE, uses_extension


@pytest.fixture(autouse=True, params=["c", "python"] if uses_extension() else ["python"])
def hooks_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have the sessions of a test do the usual path of their hooks in C, or all of it in Python."""
    way: str = request.param
    if way == "python":
        monkeypatch.setenv(PURE_VARIABLE, "1")
    else:
        monkeypatch.delenv(PURE_VARIABLE, raising=False)
    return way
