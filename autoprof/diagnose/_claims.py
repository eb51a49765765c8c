"""Let findings claim the time of the ledger: no two of them gain the same nanosecond."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ..summary import Finding, LedgerEntry
from ._bounds import MIN_SHARE


def settle(findings: Sequence[Finding], ledger: Sequence[LedgerEntry], step_ns: float) -> Iterator[Finding]:
    """Yield the findings, each with the gain that the ones before it leave, and without those that are left too little.

    The gains of all together are at most the time of the ledger.
    """
    left = {entry: entry.ns for entry in ledger}
    for finding in findings:
        gain_ns = finding.gain_ns or 0
        if not gain_ns or finding.severity == "info":
            yield finding
            continue
        owners = _owners(finding, left)
        claimed_ns = min(gain_ns, sum(left[entry] for entry in owners))
        if claimed_ns < gain_ns and claimed_ns < MIN_SHARE * step_ns:
            continue
        _take(left, owners, claimed_ns)
        yield finding if claimed_ns == gain_ns else replace(finding, gain_ns=claimed_ns)


def _owners(finding: Finding, entries: Iterable[LedgerEntry]) -> list[LedgerEntry]:
    """Return the entries that a finding may claim: those of its name, else of its phase, else of the whole step."""
    named = [one for one in entries if one.name is not None and one.name == finding.name]
    if named:
        return [one for one in named if finding.phase is None or one.phase is not None]
    in_phase = [one for one in entries if finding.phase is not None and one.phase is finding.phase]
    return in_phase or [one for one in entries if one.phase is not None]


def _take(left: dict[LedgerEntry, int], owners: Iterable[LedgerEntry], claimed_ns: int) -> None:
    for entry in sorted(owners, key=lambda one: -left[one]):
        taken = min(claimed_ns, left[entry])
        left[entry] -= taken
        claimed_ns -= taken
