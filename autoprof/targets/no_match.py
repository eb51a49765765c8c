"""Explain why a rule matches nothing, and suggest the nearest names."""

from __future__ import annotations

import re

from ..base.names import quoted
from ..config import TargetRule
from ..errors import nearest
from .tree import ModuleNode

_SHOWN = 3


def explain_no_match(rule: TargetRule, nodes: list[ModuleNode]) -> tuple[tuple[str, ...], str]:
    """Return the wrong key of the rule, and a message: the error; the allowed values or the nearest ones."""
    by_fqn = [node for node in nodes if any(map(rule.match_pattern.fullmatch, node.fqns))]
    by_type = [
        node for node in nodes if rule.type_pattern is None or any(map(rule.type_pattern.fullmatch, node.class_names))
    ]
    if rule.match is not None and not by_fqn:
        return ("match",), _no_fqn(rule.match, nodes)
    if rule.type is not None and not by_type:
        names = {name for node in nodes for name in node.class_names}
        return ("type",), f"{quoted(rule.type)} matches no class name; {nearest(_letters(rule.type), names)}"
    both = [node for node in by_fqn if node in by_type]
    if both:
        inside = "and no module inside is ever called"
        return (), f"matches only {_examples(both)}, {inside}; allowed: one with 'forward'"
    return (), f"no module has both the 'match' and the 'type'; the 'match' alone finds {_examples(by_fqn)}"


def _no_fqn(match: str, nodes: list[ModuleNode]) -> str:
    fqns = [fqn for node in nodes for fqn in node.fqns if fqn]
    group = f"(?:{match})" if "|" in match else match
    for wider in (f".*{group}", f"{group}.*", f".*{group}.*"):
        found = [fqn for fqn in fqns if _matches(wider, fqn)]
        if found:
            parts = ", ".join(map(quoted, found[:_SHOWN]))
            found_in = f"{quoted(match)} matches no whole fqn, only a part of {parts}"
            return f"{found_in}; allowed: the whole, such as {quoted(wider)}"
    return f"{quoted(match)} matches no module; {nearest(_letters(match), fqns)}"


def _matches(pattern: str, fqn: str) -> bool:
    try:
        return re.fullmatch(pattern, fqn) is not None
    except re.error:  # global flags such as (?i) may only stand at the start
        return False


def _letters(pattern: str) -> str:
    # The syntax of a regular expression, as opposed to the letters that it matches.
    return re.sub(r"\[[^]]*\]|\{[^}]*\}|\(\?(?:P?<\w+>|<?[=!]|[a-zA-Z-]*:)|\\[A-Za-z]|[\\^$()?*+|]", "", pattern)


def _examples(nodes: list[ModuleNode]) -> str:
    more = ", …" if len(nodes) > _SHOWN else ""
    return ", ".join(f"{quoted(node.fqn)} ({node.class_name})" for node in nodes[:_SHOWN]) + more
