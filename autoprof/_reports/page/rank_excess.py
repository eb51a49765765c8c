"""The comparison of the ranks for the page: a sentence, and two tables of excess in microseconds."""

from __future__ import annotations

from typing import Any, Final

from ..._ranks import RankComparison, compare_saved, phrase_slow, read_ranks
from ..._storage.runs import Run
from ...diagnose import RunFacts
from ...errors import OutputError
from ..text import safe

ALIKE: Final = "No rank is slow: the differences are within those of equal ranks."


def rank_excess(run: Run, world_size: int) -> dict[str, Any] | None:
    """Return the comparison of a run's ranks, as saved or from their records; None where there is none."""
    found = compare_saved(run.path, world_size, _saved(run))
    if found is not None and found.missing is None and found.map is None:  # saved by another version
        found = read_ranks(run.path, world_size)
    if found is None or found.missing is not None or found.map is None:
        return None if found is None else {"text": safe(f"The ranks could not be compared: {found.missing}")}
    table = found.map
    return {
        "text": safe(_phrase(found)),
        "slow": [one.rank for one in found.slow],
        "step": round(found.step_ns / 1000),
        "compared": found.steps,
        "ranks": list(table.ranks),
        "steps": list(table.steps),
        "byStep": [list(row) for row in table.by_step],
        "rows": [[safe(name), phase] for name, phase in table.rows],
        "byRow": [list(row) for row in table.by_row],
        "hidden": max(len(found.compared) - len(table.ranks), 0),
    }


def _saved(run: Run) -> RankComparison | None:
    try:
        return RunFacts.of_run_info(run.info).ranks
    except OutputError:  # facts of another version
        return None


def _phrase(found: RankComparison) -> str:
    if found.slow:
        text = phrase_slow(found)
        return f"{text[0].upper()}{text[1:]}."
    return ALIKE if found.unclear is None else f"Inconclusive: {found.unclear}."
