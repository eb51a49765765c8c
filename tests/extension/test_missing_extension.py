"""A missing extension is explained by its true reason, with the remedy for it."""

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from autoprof.capture.marks.missing import why_missing


def reason(tmp_path: Path, **found: Any) -> str:
    """Return reason and remedy, as users read them."""
    return "; ".join(why_missing(folder=tmp_path, loaded=False, **found))


def test_a_build_for_another_python_is_named(tmp_path: Path) -> None:
    """A virtual environment was moved to another interpreter."""
    (tmp_path / "_c.cpython-27-of-old.so").touch()
    assert reason(tmp_path).startswith("was built for another Python (_c.cpython-27-of-old.so); install ")


def test_a_build_that_cannot_be_loaded_shows_the_error(tmp_path: Path) -> None:
    """The loader's own words."""
    (tmp_path / f"_c{EXTENSION_SUFFIXES[0]}").touch()
    assert reason(tmp_path, error="invalid ELF header").startswith("cannot be loaded (invalid ELF header)")


def test_a_build_that_failed_says_where_the_messages_are(tmp_path: Path) -> None:
    """With all that a build needs."""
    found = reason(tmp_path)
    assert found.startswith("was not built; install torch-autoprof again")
    assert "it needs a C compiler and the headers of this Python" in found
    assert found.endswith("`pip install -v` shows the compiler's messages")
