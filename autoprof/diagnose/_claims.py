"""Let findings claim the time of the ledger: no two of them gain the same nanosecond."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ..base.summary import Finding, LedgerEntry
from ._bounds import MIN_SHARE


def settle(
    findings: Sequence[Finding], ledger: Sequence[LedgerEntry], step_ns: float, *, rank: int = 0
) -> Iterator[Finding]:
    """Yield the findings, each with the gain that others leave it, and without those that are left too little.

    The slow rank claims its time first, then those of a phase, in their order, then those that name a row alone; those
    of the whole step share the rest. The gains of all together are at most the time of the ledger, which is that of
    ``rank``: the row of a slower rank costs this one a wait, wherever in the step it waits. Where this rank is the slow
    one, a finding about the same time that is left too little is a note: it may say which code makes the rank slow.
    """
    left = {entry: entry.ns for entry in ledger}
    places = {
        at: _place(finding, ledger) if finding.rank in (None, rank) else [] for at, finding in enumerate(findings)
    }
    gains: dict[int, int] = {}
    for at in sorted(places, key=lambda at: (findings[at].rank is None, not places[at], findings[at].phase is None)):
        if findings[at].severity != "info" and findings[at].gain_ns:
            owners = places[at] or [entry for entry in ledger if entry.phase is not None]
            gains[at] = min(findings[at].gain_ns or 0, sum(left[entry] for entry in owners))
            _take(left, owners, gains[at])
    slow = {entry for at, finding in enumerate(findings) if finding.rank == rank for entry in places[at]}
    for at, finding in enumerate(findings):
        if at not in gains or gains[at] == finding.gain_ns:
            yield finding
        elif gains[at] >= MIN_SHARE * step_ns:
            yield replace(finding, gain_ns=gains[at])
        elif not slow.isdisjoint(places[at]):
            yield replace(finding, severity="note", gain_ns=None)


def _place(finding: Finding, entries: Iterable[LedgerEntry]) -> list[LedgerEntry]:
    """Return the entries of the name of a finding, else those of its phase; none where it is of the whole step.

    A module that is named for more than its own time stands for the modules in it as well.
    """
    named = [one for one in entries if one.name is not None and one.name == finding.name]
    if sum(one.ns for one in named) < (finding.gain_ns or 0):
        named += [one for one in entries if one.name is not None and one.name.startswith(f"{finding.name}/")]
    if named:
        return [one for one in named if finding.phase is None or one.phase is not None]
    return [one for one in entries if finding.phase is not None and one.phase is finding.phase]


def _take(left: dict[LedgerEntry, int], owners: Iterable[LedgerEntry], claimed_ns: int) -> None:
    for entry in sorted(owners, key=lambda one: -left[one]):
        taken = min(claimed_ns, left[entry])
        left[entry] -= taken
        claimed_ns -= taken
