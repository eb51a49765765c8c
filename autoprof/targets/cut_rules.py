"""Groups → rules of a configuration that select exactly their modules, as a mapping or as commented YAML.

Modules that the program has replaced since are in no rule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from torch import nn

from ..base.names import visible
from ..base.units import count
from .groups import ModuleGroup
from .tree import ModuleNode, walk

_HEAD: Final = """\
# Targets chosen by autoprof: {rows}, {modules}.
# To time exactly these in the next run: autoprof.instrument(model, "targets.yaml", optimizer=optimizer)
# To time the modules inside a row, add a rule such as
#   - match: '{example}'
"""


@dataclass(frozen=True, slots=True)
class CutGroup:
    """A group to time, with its share of the step and the reason for which it was not opened."""

    group: ModuleGroup
    share: float | None = None
    reason: str | None = None


class CutRules:
    """Write the rules of groups of one model; the rule of each group is found once."""

    def __init__(self, model: nn.Module) -> None:
        self._nodes = walk(model)
        self._fqns = {node.fqn for node in self._nodes}
        self._found: dict[ModuleGroup, dict[str, str]] = {}

    def mapping(self, groups: Iterable[ModuleGroup]) -> dict[str, Any]:
        """Return a configuration with one rule for each group: ``match`` and, unless it is the default, ``name``."""
        return {"targets": [dict(self._rule(group)) for group in groups]}

    def yaml(self, cut: Sequence[CutGroup]) -> str:
        """Return the rules of the cut as commented YAML, which ``autoprof.instrument`` takes as ``targets.yaml``."""
        cut = [one for one in cut if any(node.fqn in self._fqns for node in one.group.nodes)]
        rules = [self._rule(one.group) for one in cut]
        deepest = max((rule["match"] for rule in rules), key=lambda match: match.count("."), default="")
        head = _HEAD.format(
            rows=count(len(cut), "row"),
            modules=count(sum(one.group.blocks for one in cut), "module"),
            example=visible(f"{deepest}\\.\\w+" if deepest else r"\w+"),
        )
        lines = ["targets:" if cut else "targets: []"]
        for one, rule in zip(cut, rules, strict=True):
            lines.append(f"  # {visible(_comment(one))}")
            lines.append(f"  - match: {_scalar(rule['match'])}")
            lines.extend(f"    name: {_scalar(rule['name'])}" for _ in rule.keys() & {"name"})
        return head + "\n".join(lines) + "\n"

    def _rule(self, group: ModuleGroup) -> dict[str, str]:
        if group not in self._found:
            fqns = [node.fqn for node in group.nodes if node.fqn in self._fqns]
            patterns = _patterns(fqns)
            rule = {"match": next(one for one in patterns if _matched(one, self._nodes) == set(fqns))}
            if len(fqns) > 1 or group.name != fqns[0].replace(".", "/"):
                rule["name"] = group.name.replace("\\", "\\\\")
            self._found[group] = rule
        return self._found[group]


def _matched(pattern: str, nodes: list[ModuleNode]) -> set[str]:
    whole = re.compile(pattern)
    return {node.fqn for node in nodes if any(map(whole.fullmatch, node.fqns))}


def _patterns(fqns: list[str]) -> Iterator[str]:
    r"""Yield patterns for the fqns, from the shortest to the most exact: ``h\.\d+``, ``h\.(?:1|3)``, every fqn."""
    paths = [fqn.split(".") for fqn in fqns]
    if len({len(path) for path in paths}) == 1:
        columns = [list(dict.fromkeys(words)) for words in zip(*paths, strict=True)]
        yield r"\.".join(map(_any_number, columns))
        yield r"\.".join(map(_one_of, columns))
    yield "|".join(map(re.escape, fqns))


def _any_number(words: Sequence[str]) -> str:
    """Return a pattern of words that differ only in the number at their end, with any number."""
    stems = {re.sub(r"\d+$", "", word) for word in words}
    if len(words) == 1 or len(stems) > 1 or not all(word[-1:].isdigit() for word in words):
        return _one_of(words)
    return f"{re.escape(stems.pop())}\\d+"


def _one_of(words: Sequence[str]) -> str:
    return re.escape(words[0]) if len(words) == 1 else f"(?:{'|'.join(map(re.escape, words))})"


def _comment(one: CutGroup) -> str:
    words = [one.group.class_name]
    if one.group.blocks > 1:
        words.append(count(one.group.blocks, "module"))
    if one.share is not None:
        words.append(f"{one.share:.1%} of the step")
    return ", ".join(words) + (f"; {one.reason}" if one.reason else "")


def _scalar(text: str) -> str:
    return "'" + text.replace("'", "''") + "'" if text.isprintable() else json.dumps(text)
