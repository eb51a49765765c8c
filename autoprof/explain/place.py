"""Where a finding is in the program: the line of the call, or the module's code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .._storage.runs import Run
from ..diagnose import CallStatistics, RunFacts, StackTable
from ..summary import Finding, Summary
from .data import CodePlace


def find_place(finding: Finding, summary: Summary, run: Run, facts: RunFacts) -> CodePlace:
    """Return the place of a finding, as far as the run knows it."""
    phase = None if finding.phase is None else str(finding.phase)
    at = CodePlace(phase, finding.name, rank=finding.rank)
    row = next((row for row in summary.rows if row.name == finding.name and row.fqn), None)
    fqn = finding.name if row is None else row.fqn
    source = (run.info.get("sources") or {}).get(fqn)
    if row is not None or source is not None:
        at = CodePlace(phase, finding.name, fqn, rank=finding.rank)
    if source is not None:
        return CodePlace(
            phase, finding.name, fqn, source["class"], source["file"], source["line"], "forward", rank=finding.rank
        )
    line = _line(finding, facts)
    if line is None:
        return at
    file, number, function, call = line
    return CodePlace(phase, finding.name, at.module, None, file, number, function, call, finding.rank)


_Line = tuple[str, int, str | None, str | None]
"""File, line, the function around it, the function called there."""


def _line(finding: Finding, facts: RunFacts) -> _Line | None:
    """Return the line with the most time: of the evidence, else of the samples in spans of the phase."""
    for key in ("sites", "lines", "functions"):
        for one in finding.evidence.get(key) or ():
            return _from_evidence(one, facts)
    if finding.phase is None:
        return None
    start = f"{finding.phase} {finding.name or ''}".rstrip()
    tables = [table for kind, table in facts.stacks.items() if kind.startswith(start) and table.named]
    if not tables:
        return None
    line = max(tables, key=lambda table: table.ns).named[0]
    return line.file, line.line, line.function, line.call or None


def _from_evidence(one: Mapping[str, Any], facts: RunFacts) -> _Line | None:
    file, colon, number = str(one.get("where", "")).rpartition(":")
    if not colon or not number.isdigit():
        return None
    full = next((path for path, line in _lines(facts) if line == int(number) and path.endswith(file)), file)
    return full, int(number), one.get("function"), one.get("call")


def _lines(facts: RunFacts) -> Iterator[tuple[str, int]]:
    """Yield all lines that the run knows with their full paths: the evidence has them as the reports show them."""
    tables: list[CallStatistics | StackTable | None] = [facts.waits, facts.logs, facts.cleanups, *facts.stacks.values()]
    for table in tables:
        if table is not None:
            sites = table.lines if isinstance(table, StackTable) else table.sites
            yield from ((site.file, site.line) for site in sites)
    if facts.compiled is not None:
        for function in facts.compiled.functions:
            file, _, number = function.location.rpartition(":")
            if number.isdigit():
                yield file, int(number)
