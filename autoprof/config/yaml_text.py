"""YAML text → plain data with the line of every key. No code in the text runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import yaml

from ..base.names import shorten, visible
from ..errors import ConfigError
from .source import MAX_DEPTH, KeyPath, Problem, Source

MAX_SHOWN: Final = 300
"""Characters shown of PyYAML's message, which may hold a whole name."""

_YAML: Final = "tag:yaml.org,2002:"
_SCALARS: Final = frozenset(_YAML + kind for kind in ("str", "int", "float", "null", "merge"))


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with words as in YAML 1.2: dates, ``on`` and ``off`` are text, ``1e-2`` is a number."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in _SCALARS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(f"{_YAML}bool", re.compile("true|True|TRUE|false|False|FALSE"), list("tTfF"))
_Loader.add_implicit_resolver(
    f"{_YAML}float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+"), list("-+0123456789")
)


def read_yaml(
    text: str, where: str, foreign: Callable[[set[str]], set[str]]
) -> tuple[dict[Any, Any], Source, list[Problem]]:
    """Read one document whose top level is a mapping; an empty text is an empty mapping.

    ``foreign`` returns the top-level keys of other programs, which are not read. Raises ``ConfigError`` for a text that
    cannot be read at all; the list has the keys that are there twice.
    """
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None or root.tag == f"{_YAML}null":
            return {}, Source(where), []
        if not isinstance(root, yaml.MappingNode):
            kind = "a list" if isinstance(root, yaml.SequenceNode) else "a single value"
            line = root.start_mark.line + 1
            raise ConfigError(
                [f"{where}:{line}: the file contains {kind}; allowed: keys with values, such as 'output: runs'"]
            )
        names = [key.value if isinstance(key, yaml.ScalarNode) else "" for key, _ in root.value]
        skipped = foreign(set(names))
        root.value = [pair for name, pair in zip(names, root.value, strict=True) if name not in skipped]
        keys = _Keys()
        keys.find(root, ())
        return loader.construct_document(root), Source(where, keys.lines), keys.repeated
    except yaml.YAMLError as error:
        raise ConfigError([_syntax_problem(error, text, where)]) from None
    except RecursionError:
        raise ConfigError([f"{where}: nested too deeply; allowed: {MAX_DEPTH} levels"]) from None
    except (ValueError, LookupError, AttributeError, TypeError, OverflowError) as error:  # such as ``!!int abc``
        shown = shorten(visible(str(error)), MAX_SHOWN)
        raise ConfigError([f"{where}: a value contradicts its tag: {shown}; allowed: plain values"]) from None


class _Keys:
    """The line of each key and item of a document, and the keys that one mapping has twice."""

    def __init__(self) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.repeated: list[Problem] = []

    def find(self, node: yaml.Node, key: KeyPath) -> None:
        """Add the keys of a node and of all nodes below it."""
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                inside = (*key, index)
                self.lines[inside] = item.start_mark.line + 1
                self.find(item, inside)
        elif isinstance(node, yaml.MappingNode):
            written: dict[str, int] = {}
            for name_node, value in node.value:
                name = str(name_node.value)
                inside = (*key, name)
                self.lines[inside] = name_node.start_mark.line + 1
                if name in written:
                    text = f"the key is on line {written[name]} as well; allowed: once"
                    self.repeated.append(Problem(inside, text))
                written[name] = self.lines[inside]
                self.find(value, inside)


def _syntax_problem(error: yaml.YAMLError, text: str, where: str) -> str:
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return f"{where}:{line}: the character U+{error.character:04X} is not allowed in YAML; allowed: printable text"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return f"{where}: not YAML: {shorten(visible(str(error)), MAX_SHOWN)}; allowed: YAML 1.1"
    mark, context = error.problem_mark, f" ({error.context})" if error.context else ""
    shown = shorten(visible(f"{error.problem}{context}"), MAX_SHOWN)
    return (
        f"{where}:{mark.line + 1}: not YAML at column {mark.column + 1}: {shown}; check the indentation and the quotes"
    )
