"""The records of a saved run: its summary and findings, and the steps from which sinks write their files again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..base.frame import StepFrame
from ..base.stats import Aggregate
from ..base.storage.runs import Run
from ..base.summary import Summary
from ..capture.memory import tabulate
from ..ranks import compare_saved
from ._evidence import Evidence, EvidenceCollector
from ._facts import RunFacts
from ._judge import diagnose


@dataclass(frozen=True, slots=True)
class SavedSteps:
    """Steps ``first`` to ``last`` (None: no end) of some ranks of a saved run."""

    run: Run
    ranks: Sequence[int]
    first: int = 1
    last: int | None = None

    @property
    def rank(self) -> int:
        """The rank of a file that has one rank only: the lowest."""
        return self.ranks[0]

    def frames(self, rank: int) -> Iterator[StepFrame]:
        """Yield the frames of one rank."""
        for frame in self.run.rank_frames(rank):
            if frame.step >= self.first and (self.last is None or frame.step <= self.last):
                yield frame

    def origin_unix_ns(self) -> int | None:
        """Return the start of the first of these steps on any rank, None where there is no step."""
        firsts = (next(self.frames(rank), None) for rank in self.ranks)
        return min((frame.start_unix_ns for frame in firsts if frame is not None), default=None)

    def summary(self) -> Summary:
        """Return the summary of ``rank``."""
        return saved_summary(self.run, self.rank)


def evidence_of_run(run: Run) -> Evidence:
    """Return the evidence of a saved run; without a saved summary it is computed from the records."""
    aggregate, collector = _read(run.frames if run.ranks else (), summarize=run.summary is None)
    return collector.evidence(run.summary or aggregate.summary(), _facts(run))


def _facts(run: Run) -> RunFacts:
    facts = RunFacts.of_run_info(run.info)
    if facts.world_size <= 1:
        return facts
    return replace(facts, rank=0, ranks=compare_saved(run.path, facts.world_size, facts.ranks))


def saved_summary(run: Run, rank: int | None = None) -> Summary:
    """Return the summary of one rank, or of the run (None); of a run that was killed, computed from its records."""
    summary = run.summary if rank is None else run.rank_summary(rank)
    if summary is not None:
        return diagnose(evidence_of_run(run)) if rank is None and len(run.ranks) > 1 else summary
    frames = run.frames if rank is None else run.rank_frames(rank)
    aggregate, collector = _read(frames)
    notes = ["this run was not closed; these figures are from its records"]
    if frames.bad_lines:
        notes.append(f"{frames.bad_lines} incomplete lines of steps.jsonl were skipped")
    if frames.has_removed_steps:
        notes.append("steps were removed from the records to keep the run's folder below output_max_mb")
    table = tabulate(aggregate.summary(notes=tuple(notes)), {})
    return diagnose(collector.evidence(table, _facts(run)))


def _read(frames: Iterable[StepFrame], *, summarize: bool = True) -> tuple[Aggregate, EvidenceCollector]:
    """Add the frames to statistics, unless a summary has them, and to the evidence."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    for frame in frames:
        collector.add(frame)
        if summarize:
            aggregate.add(frame)
    return aggregate, collector
