"""Rule ``straggler``: one rank's own work takes longer, in all steps or in some, and the other ranks wait for it.

Finds, above a bound:

- the ranks that the others wait for, with phase, module and cause: in all steps, again and again, or once: 5 %; 2.5 %
  if in some steps.
"""

from __future__ import annotations

from typing import Any, Final

from ...base.stats.intervals import Interval
from ...base.summary import Finding
from ...ranks import MIN_SHARE, Cause, RankComparison, name_ranks, phrase_slow
from .. import Evidence, Experiment, Rule, abstain, inconclusive
from .._bounds import MARGIN
from .._thresholding import share_evidence


def judge(run: Evidence) -> Finding | None:
    """Report the rank that the others wait for, and name further ones."""
    if run.facts.world_size <= 1:
        return abstain("straggler", "other ranks", "nothing to do when one process trains alone")
    ranks = run.facts.ranks
    if ranks is None:
        missing = "the other ranks' records" if run.facts.rank else "the ranks' records: none compared yet"
        return abstain("straggler", missing, "rank 0 compares them, and so does autoprof show RUN")
    if ranks.missing is not None:
        return abstain("straggler", ranks.missing, "autoprof show RUN compares them when all are in one folder")
    if not ranks.slow:
        return _without_slow_rank(ranks)
    slow = ranks.slow[0]
    # Work that is shared out evenly takes longer on the others; a mended loader or machine is as fast as theirs.
    gained = 1 - 1 / run.facts.world_size if slow.cause == "batches" else 1.0
    return Finding(
        "straggler",
        "warning",
        phrase_slow(ranks),
        _ADVICE.get(slow.cause, _OTHER_ADVICE),
        slow.name or None,
        slow.phase,
        slow.rank,
        gain_ns=round(gained * slow.gain_ns),
        evidence={
            **_evidence(ranks, slow.excess_ns, MIN_SHARE if slow.kind == "persistent" else MIN_SHARE / 2),
            "kind": slow.kind,
            "cause": slow.cause,
            "ratio": slow.ratio,
            "amount": slow.amount,
            "explained": slow.explained,
            "late": list(slow.steps[:8]),
            "period": slow.period,
            "slow": [[one.rank, one.kind, one.cause, one.name, str(one.phase)] for one in ranks.slow],
        },
    )


def _evidence(ranks: RankComparison, excess_ns: Interval, bound: float) -> dict[str, Any]:
    share = excess_ns.over(Interval.exact(ranks.step_ns))
    return {
        **share_evidence(share, bound, ranks.steps),
        "own_ns": list(ranks.own_ns),
        "excess_ns": round(excess_ns.middle),
        "absent": list(ranks.absent),
    }


def _without_slow_rank(ranks: RankComparison) -> Finding | None:
    """Return an abstention where the ranks may differ nevertheless; None where they are alike."""
    share = ranks.excess_ns.over(Interval.exact(ranks.step_ns))
    evidence = _evidence(ranks, ranks.excess_ns, MIN_SHARE)
    if ranks.unclear is not None:
        remedy = "put spans around the communication inside of modules: one of the two ranks waits there"
        return abstain("straggler", f"inconclusive: {ranks.unclear}", remedy, evidence)
    if ranks.absent:
        which = name_ranks(ranks.absent)
        missing = f"the records of {which}: the other ranks are alike"
        return abstain("straggler", missing, f"look whether {which} still runs; autoprof show RUN", evidence)
    if share.low > 0 and share.middle >= MIN_SHARE * (1 - MARGIN):
        return inconclusive("straggler", share, MIN_SHARE, evidence)
    return None


_ADVICE: Final[dict[Cause, str]] = {
    "data": "check that rank's loader: its disk, its share of the files, the length of its samples, its workers",
    "copies": "check that rank's copies to its device: pinned memory, the link, the size of its batches",
    "batches": "give every rank the same amount of work: batches by their number of tokens, or sorted by length",
    "clock": "check that device's temperature, power limit and cooling (nvidia-smi -q -d PERFORMANCE), or replace it",
    "busy machine": "end the other processes on that rank's machine, or give the rank processors of its own",
    "machine": "check that machine: other processes, clocks and temperature, its link; or run without it",
    "user": "move the work of that rank alone (logging, saving) out of the step, or share it among the ranks",
    "optimizer": "give every rank the same share of the parameters (sharding), and look for more work in its optimizer",
    "host": "look at that rank's process: garbage collection (gc.freeze() after set-up), saving, other processes",
}


_OTHER_ADVICE: Final = (
    "give every rank the same amount of work (lengths of its samples, its part of the model, its experts); if it has "
    "the same, check that machine: other processes, clocks and temperature, its link"
)


RULE = Rule(
    "straggler",
    judge,
    order=190,
    host_times=False,  # each rank is compared with the others, which wait for the same processors
    needs_steps=False,  # the ranks are compared in steps of all targets, this run's statistics are of one set of them
    experiment=lambda finding: Experiment("rank.work", "edit", target=str(finding.rank)),
)
