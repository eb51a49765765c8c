"""YAML text → plain data with the line of every key. No code in the text runs, and its size is bounded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, NoReturn

import yaml

from .._names import quoted, shorten, visible
from ..errors import ConfigError
from .source import KeyPath, Problem, Source

VALUES_LIMIT: Final = 100_000
"""The largest number of values of a text with its aliases expanded; a configuration has hundreds."""
NODES_LIMIT: Final = 100_000
"""The largest number of keys and values of a text as it is written: PyYAML takes seconds for more."""
DEPTH_LIMIT: Final = 50
PARSER_DEPTH_LIMIT: Final = 4 * DEPTH_LIMIT
"""Levels parsed, in parts of other programs too: PyYAML's time grows with the square of the depth."""
NUMBER_BITS: Final = 64
MAX_SHOWN: Final = 300
"""Characters shown of PyYAML's message, which may hold a whole name."""

_YAML: Final = "tag:yaml.org,2002:"
_MERGE: Final = f"{_YAML}merge"
_NULL: Final = f"{_YAML}null"
_SCALARS: Final = frozenset(_YAML + kind for kind in ("str", "int", "float", "bool", "null"))
_TAGS: Final = {
    yaml.ScalarNode: _SCALARS,
    yaml.SequenceNode: frozenset({f"{_YAML}seq"}),
    yaml.MappingNode: frozenset({f"{_YAML}map"}),
}
_EXPONENT: Final = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, but a date is text and ``1e-2`` is a number, contrary to YAML 1.1; its size is bounded."""

    depth = 0
    nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node and those below it, down to ``PARSER_DEPTH_LIMIT``, up to ``NODES_LIMIT``."""
        self.depth += 1
        self.nodes += 1
        if self.depth > PARSER_DEPTH_LIMIT:
            raise _TooDeep(self.line + 1)
        if self.nodes > NODES_LIMIT:
            raise _TooMany(self.line + 1)
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _TooDeep(Exception):
    """More nested values than ``PARSER_DEPTH_LIMIT``, at this line."""


class _TooMany(Exception):
    """More keys and values than ``NODES_LIMIT``, at this line."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in _SCALARS or tag == _MERGE]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(f"{_YAML}float", _EXPONENT, list("-+0123456789"))


def read_yaml(
    text: str, where: str, foreign: Callable[[set[str]], set[str]]
) -> tuple[dict[str, Any], Source, list[Problem]]:
    """Read one document whose top level is a mapping; an empty text is an empty mapping.

    ``foreign`` returns the top-level keys of other programs, which are not read. Problems of single keys are returned
    in the list, without these keys in the data. Raises ``ConfigError`` for a text that cannot be read at all.
    """
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
    except yaml.YAMLError as error:
        raise ConfigError([_syntax_problem(error, text, where)]) from None
    except _TooDeep as error:
        raise ConfigError([f"{where}:{error}: nested too deeply; allowed: {DEPTH_LIMIT} levels"]) from None
    except _TooMany as error:
        text = f"more than {NODES_LIMIT:,} keys and values; allowed: a YAML file of ordinary size"
        raise ConfigError([f"{where}:{error}: {text}"]) from None
    except RecursionError:
        raise ConfigError([f"{where}: nested too deeply; allowed: {DEPTH_LIMIT} levels"]) from None
    reader = _Reader(loader, where)
    if root is None or root.tag == _NULL:
        return {}, Source(where), []
    if not isinstance(root, yaml.MappingNode):
        kind = "a list" if isinstance(root, yaml.SequenceNode) else "a single value"
        line = root.start_mark.line + 1
        raise ConfigError(
            [f"{where}:{line}: the file contains {kind}; allowed: keys with values, such as 'output: runs'"]
        )
    data = reader.read(root, foreign)
    return data, Source(where, reader.lines), reader.problems


class _InvalidValue(Exception):
    """A value whose problem has been recorded; the values around it are still read."""


class _Reader:
    """Convert nodes into values, record lines and problems, and stop at ``VALUES_LIMIT``."""

    def __init__(self, loader: _Loader, where: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[Problem] = []
        self._loader = loader
        self._where = where
        self._values_left = VALUES_LIMIT
        self._depth = 0

    def read(self, root: yaml.MappingNode, foreign: Callable[[set[str]], set[str]]) -> dict[str, Any]:
        names = [key.value if isinstance(key, yaml.ScalarNode) else "" for key, _ in root.value]
        skipped = foreign(set(names))
        root.value = [pair for name, pair in zip(names, root.value, strict=True) if name not in skipped]
        return self._mapping(root, ())

    def _value(self, node: yaml.Node, key: KeyPath) -> Any:
        self._values_left -= 1
        if self._values_left < 0:
            raise ConfigError([f"{self._where}: more than {VALUES_LIMIT} values with aliases expanded; allowed: fewer"])
        if self._depth >= DEPTH_LIMIT:
            line = node.start_mark.line + 1
            raise ConfigError([f"{self._where}:{line}: nested too deeply; allowed: {DEPTH_LIMIT} levels"])
        if node.tag not in _TAGS[type(node)]:
            tag = quoted(node.tag.replace(_YAML, "!!"))
            self._reject(key, f"the tag {tag} is not supported; allowed: plain YAML without tags")
        self._depth += 1
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, key)
            return self._sequence(node, key) if isinstance(node, yaml.SequenceNode) else self._scalar(node, key)
        finally:
            self._depth -= 1

    def _mapping(self, node: yaml.MappingNode, key: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for merged in self._merged(node, key):
            values = {**merged, **values}
        written: dict[str, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                continue
            line = key_node.start_mark.line + 1
            with suppress(_InvalidValue):
                name = self._name(key_node, key, line)
                inside = (*key, name)
                self.lines[inside] = line
                if name in written:
                    text = f"the key is on line {written[name]} as well; allowed: once"
                    self.problems.append(Problem(inside, text))
                written[name] = line
                values.pop(name, None)
                values[name] = self._value(value_node, inside)
        return values

    def _merged(self, node: yaml.MappingNode, key: KeyPath) -> Iterator[dict[str, Any]]:
        for key_node, value_node in node.value:
            if key_node.tag != _MERGE:
                continue
            several = isinstance(value_node, yaml.SequenceNode)
            for part in value_node.value if several else [value_node]:
                with suppress(_InvalidValue):
                    if not isinstance(part, yaml.MappingNode):
                        line = key_node.start_mark.line + 1
                        self._reject(key, "'<<' merges a value without keys; allowed: one or more mappings", line)
                    yield self._value(part, key)

    def _name(self, node: yaml.Node, key: KeyPath, line: int) -> str:
        words = (f"{_YAML}str", f"{_YAML}bool")  # YAML 1.1 reads the key `on` of `deep` as true
        if isinstance(node, yaml.ScalarNode) and node.tag in words:
            return str(node.value)
        simple = isinstance(node, yaml.ScalarNode)
        shown = f"the key {quoted(node.value)}" if simple else "a key that is a list or a mapping"
        self.problems.append(Problem(key, f"{shown} is not text; allowed: a word, in quotes if needed", line))
        raise _InvalidValue

    def _sequence(self, node: yaml.SequenceNode, key: KeyPath) -> list[Any]:
        values = []
        for index, item in enumerate(node.value):
            inside = (*key, index)
            self.lines[inside] = item.start_mark.line + 1
            try:
                values.append(self._value(item, inside))
            except _InvalidValue:
                values.append(None)  # the others keep their index
        return values

    def _scalar(self, node: yaml.Node, key: KeyPath) -> Any:
        try:
            value = self._loader.construct_object(node)
        except (ValueError, KeyError, IndexError, yaml.YAMLError):
            kind = node.tag.removeprefix(_YAML)
            self._reject(key, f"{quoted(str(node.value))} is not a YAML {kind}; allowed: a plain value")
        if isinstance(value, int) and value.bit_length() > NUMBER_BITS:
            self._reject(key, f"the number is too large; allowed: at most {NUMBER_BITS} bits")
        return value

    def _reject(self, key: KeyPath, text: str, line: int | None = None) -> NoReturn:
        self.problems.append(Problem(key, text, line))
        raise _InvalidValue


def _syntax_problem(error: yaml.YAMLError, text: str, where: str) -> str:
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return f"{where}:{line}: the character U+{error.character:04X} is not allowed in YAML; allowed: printable text"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return f"{where}: not YAML: {error}; allowed: YAML 1.1"
    problem = str(error.problem)
    place = f"{where}:{error.problem_mark.line + 1}"
    if "'\\t'" in problem:
        return f"{place}: indented with a tab; allowed: spaces for indentation"
    if "another document" in problem:
        return f"{place}: a second document begins with '---'; allowed: one document in a file"
    context = f" ({error.context})" if error.context else ""
    column = error.problem_mark.column + 1
    shown = shorten(visible(problem + context), MAX_SHOWN)
    return f"{place}: not YAML at column {column}: {shown}; check the indentation and the quotes"
