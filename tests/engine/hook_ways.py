"""Hooks in C and hooks in Python: tests run with those of the build; a file with ``both_ways`` runs with each."""

from __future__ import annotations

import pytest

from autoprof._capture.marks.native import PURE_VARIABLE, uses_extension

WAYS = ["c", "python"] if uses_extension() else ["python"]
both_ways = pytest.mark.parametrize("hooks_in", WAYS, indirect=True)


@pytest.fixture(autouse=True)
def hooks_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have the sessions of a test do the usual path of their hooks in C, or all of it in Python."""
    way: str = getattr(request, "param", WAYS[0])
    if way == "python":
        monkeypatch.setenv(PURE_VARIABLE, "1")
    else:
        monkeypatch.delenv(PURE_VARIABLE, raising=False)
    return way
