"""Parts of a kind: built-in modules and entry points of other packages are found alike."""

import sys
from pathlib import Path

import pytest

from autoprof.base.plugins import PartKind


@pytest.fixture
def colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PartKind[str]:
    """A kind with two built-in parts, ``red`` and ``blue``; a package adds ``green`` and two defective ones."""
    package = tmp_path / "colours"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "_mixing.py").write_text("raise RuntimeError('a helper is no part')")
    (package / "red.py").write_text("COLOUR = '#f00'")
    (package / "blue.py").write_text("COLOUR = '#00f'")
    (tmp_path / "third_party.py").write_text("GREEN = '#0f0'\nFIVE = 5\nRED = '#900'")
    info = tmp_path / "third_party-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[colours]\ngreen = third_party:GREEN\nbroken = missing_module:X\n"
        "five = third_party:FIVE\nred = third_party:RED\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield PartKind("colour", "colours", "COLOUR", str)
    for name in [name for name in sys.modules if name.split(".")[0] in ("colours", "third_party")]:
        del sys.modules[name]


def test_built_in_parts_are_the_modules_without_underscore(colours: PartKind[str]) -> None:
    """A file in the package is a part; a helper beside it is not imported."""
    assert colours.modules == ("blue", "red")


def test_another_package_adds_a_part(colours: PartKind[str]) -> None:
    """An entry point of the group is a part like the others, and comes after them."""
    assert list(colours.parts.items()) == [("blue", "#00f"), ("red", "#f00"), ("green", "#0f0")]


def test_a_part_that_cannot_be_loaded_is_left_out_with_a_warning(
    colours: PartKind[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A module that is missing, or an object of another type, costs only that part."""
    assert "broken" not in colours.parts
    assert "five" not in colours.parts
    assert [record.getMessage() for record in caplog.records] == [
        "colour 'broken' of another package: ModuleNotFoundError: No module named 'missing_module'",
        "colour 'five' of another package: TypeError: third_party:FIVE: of type int; it must be a str",
    ]
