"""Digest code without its comments, docstrings and layout: words that change make no page old."""

from __future__ import annotations

import ast
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
SUFFIXES: Final = (".py", ".c", ".h")
DIGITS: Final = 8
VERSIONED: Final = ("kind", "type_ignores")
"""Fields of a syntax tree that say nothing of what the code does."""
_C_TOKEN: Final = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|/\*.*?\*/|//[^\n]*|\s+""", re.DOTALL)
"""A string, which stays, or a comment or a gap, which becomes one space."""


def digest(path: str, root: Path = ROOT) -> str:
    """Return the digest of a file, or of all code below a folder; ``absent`` where there is none."""
    place = root / path
    files = [place] if place.is_file() else sorted(one for one in place.rglob("*") if one.suffix in SUFFIXES)
    if not files:
        return "absent"
    whole = hashlib.sha256()
    for file in files:
        whole.update(f"{file.relative_to(root).as_posix()}\0".encode() + _of_file(file))
    return whole.hexdigest()[:DIGITS]


@cache
def _of_file(file: Path) -> bytes:
    text = file.read_text(encoding="utf-8")
    return hashlib.sha256((python_code(text) if file.suffix == ".py" else c_code(text)).encode()).digest()


def c_code(text: str) -> str:
    """Return C without comments, with one space for each gap."""
    return " ".join(_C_TOKEN.sub(lambda found: found[1] or " ", text).split())


def python_code(text: str) -> str:
    """Return the syntax tree of Python as text, the same in every version of Python, without docstrings."""
    return repr(_plain(ast.parse(text)))


def _plain(node: Any) -> Any:
    """Return a node as tuples; what is absent, and what only some versions of Python have, is left out."""
    if isinstance(node, ast.AST):
        fields = (
            (name, _plain(value)) for name, value in ast.iter_fields(node) if name not in ("kind", "type_ignores")
        )
        return (type(node).__name__, *(field for field in fields if field[1] is not None and field[1] != ()))
    if isinstance(node, list):
        return tuple(_plain(one) for one in node if not _is_text(one))
    return None if node is None else repr(node)


def _is_text(node: Any) -> bool:
    """Return whether a statement is a docstring, of a module, a class, a function or a constant."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
