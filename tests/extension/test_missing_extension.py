"""A missing extension is explained by its true reason, with the remedy for it."""

import re
import sys
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

from autoprof._capture.marks.missing import NEWEST_PYTHON, why_missing

ROOT = Path(__file__).parents[2]


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The variables of this Python's build, which a test changes."""
    values = {"Py_GIL_DISABLED": 0, "CC": "cc-of-nobody"}
    monkeypatch.setattr(sysconfig, "get_config_var", values.get)
    monkeypatch.delenv("CC", raising=False)
    return values


@pytest.fixture
def headers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of headers with ``Python.h``."""
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path))
    return tmp_path / "Python.h"


def reason(tmp_path: Path, **found: Any) -> str:
    """Return reason and remedy, as users read them."""
    return "; ".join(why_missing(folder=tmp_path, loaded=False, **found))


def test_a_free_threaded_python_is_told_to_use_the_ordinary_build(config: dict[str, Any], tmp_path: Path) -> None:
    """No compiler would help there."""
    config["Py_GIL_DISABLED"] = 1
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert reason(tmp_path) == (
        f"needs the GIL, and this Python is a free-threaded build; use the ordinary build of Python {python}"
    )


def test_a_newer_python_is_told_the_newest_that_was_tried(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its headers may have changed."""
    monkeypatch.setattr(sys, "version_info", (NEWEST_PYTHON[0], NEWEST_PYTHON[1] + 1, 0))
    assert "is newer than those that were tried; use Python 3.10 to 3.15" in reason(tmp_path)


def test_a_build_for_another_python_is_named(config: dict[str, Any], tmp_path: Path) -> None:
    """A virtual environment was moved to another interpreter."""
    (tmp_path / "_c.cpython-27-of-old.so").touch()
    assert reason(tmp_path).startswith("was built for another Python (_c.cpython-27-of-old.so); install ")


def test_a_build_that_cannot_be_loaded_shows_the_error(config: dict[str, Any], tmp_path: Path) -> None:
    """The loader's own words."""
    (tmp_path / f"_c{EXTENSION_SUFFIXES[0]}").touch()
    assert reason(tmp_path, error="invalid ELF header").startswith("cannot be loaded (invalid ELF header)")


def test_missing_headers_are_named(config: dict[str, Any], headers: Path, tmp_path: Path) -> None:
    """With the file that was looked for."""
    headers.unlink()
    assert reason(tmp_path).startswith(f"was not built: there is no {headers}; install the headers of Python")


def test_a_missing_compiler_is_named(config: dict[str, Any], headers: Path, tmp_path: Path) -> None:
    """The one that this Python was built with, or that of the environment."""
    assert reason(tmp_path).startswith("was not built: there is no C compiler (cc-of-nobody); install one")


def test_a_build_that_failed_says_where_the_messages_are(config: dict[str, Any], headers: Path, tmp_path: Path) -> None:
    """Compiler and headers are there."""
    config["CC"] = f"{sys.executable} -flag"
    assert reason(tmp_path).endswith("`pip install -v` shows the compiler's messages")


def test_the_newest_python_is_that_of_the_package() -> None:
    """The classifiers in pyproject.toml end with it."""
    versions = re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    assert max(map(int, versions)) == NEWEST_PYTHON[1]
