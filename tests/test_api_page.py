"""``docs/api.md`` is what the docstrings of the public names say."""

import inspect
from pathlib import Path

import autoprof
from docs import api


def test_the_page_is_made_from_the_docstrings() -> None:
    """``make api`` has been run since a public docstring changed."""
    assert Path(api.PAGE).read_text("utf-8") == api.page()


def test_every_public_name_has_a_docstring() -> None:
    """Classes and functions, and their public methods."""
    bare = [name for name in autoprof.__all__ if not (getattr(autoprof, name).__doc__ or "").strip()]
    for name in autoprof.__all__:
        value = getattr(autoprof, name)
        if inspect.isclass(value):
            bare += [
                f"{name}.{member}"
                for member, function in vars(value).items()
                if inspect.isfunction(function) and not member.startswith("_") and not inspect.getdoc(function)
            ]
    assert not bare
