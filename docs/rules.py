"""Write the tables of ``docs/verdict.md`` from the docstrings of the rules and bounds: ``python -m docs.rules``."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from inspect import getdoc
from itertools import pairwise
from pathlib import Path
from typing import Final

from autoprof.diagnose import find_rules

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "verdict.md"
FOLDER: Final = ROOT / "autoprof" / "diagnose"
END: Final = "<!-- end -->"


def with_tables(page: str) -> str:
    """Return the page with its two tables brought up to date."""
    return _with_table(_with_table(page, "rules", _rules()), "bounds", _bounds())


def _with_table(page: str, name: str, rows: Iterator[str]) -> str:
    begin = f"<!-- begin {name}: written by python -m docs.rules -->"
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(END)
    return "\n".join([f"{before}{begin}", "", *rows, "", f"{END}{after}"])


def _rules() -> Iterator[str]:
    """Yield the table of what each rule finds: the list of its module's docstring."""
    yield "| rule | finds | above |"
    yield "|---|---|---|"
    for name, rule in find_rules().items():
        listed = (getdoc(import_module(rule.judge.__module__)) or "").partition("Finds, above a bound:")[2]
        for at, item in enumerate(listed.split("\n- ")[1:]):
            finds, _, above = _markdown(item).rstrip(".").rpartition(": ")
            yield f"| | or {finds} | {above} |" if at else f"| `{name}` | {finds} | {above} |"


def _bounds() -> Iterator[str]:
    """Yield the table of the numbers that decide: constants with a docstring."""
    yield "| bound | value | reason |"
    yield "|---|---|---|"
    for file in sorted(FOLDER.rglob("*.py")):
        body = ast.parse(file.read_text(encoding="utf-8")).body
        for one, reason in pairwise(body):
            if isinstance(one, ast.AnnAssign) and one.value is not None and isinstance(reason, ast.Expr):
                value, text = ast.unparse(one.value), ast.literal_eval(reason.value)
                if re.fullmatch(r"[-\d._e *]+", value):
                    place = file.relative_to(FOLDER).with_suffix("").as_posix().removeprefix("rules/").replace("_", "-")
                    yield f"| {place.lstrip('-')}: {ast.unparse(one.target)} | {value} | {_markdown(text)} |"


def _markdown(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("``", "`").replace("|", "\\|")


def main() -> int:
    """Write the page."""
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
