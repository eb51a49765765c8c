"""The tables of ``docs/verdict.md`` are the docstrings of the rules and of their bounds."""

from __future__ import annotations

from autoprof.diagnose import find_rules
from docs.rules import PAGE, with_tables


def test_the_tables_are_up_to_date() -> None:
    """``python -m docs.rules`` writes them."""
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page) == page


def test_each_rule_has_its_row() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in find_rules() if f"| `{name}` |" not in page] == []
