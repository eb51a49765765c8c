"""Records of ranks from seeded noise: a training of several ranks on a machine whose processors they share."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from autoprof.base.frame import Phase
from autoprof.ranks import RankRecord, SpanKey
from autoprof.ranks.record import COMM_ROW, OUTSIDE_ROW

Times = npt.NDArray[np.float64]
MS = 1_000_000
USUAL_MS: dict[SpanKey, float] = {
    ("Data", Phase.DATA): 0.1,
    ("Model", Phase.FORWARD): 0.1,
    ("encoder", Phase.FORWARD): 3.0,
    ("middle", Phase.FORWARD): 0.5,
    ("decoder", Phase.FORWARD): 2.0,
    ("decoder", Phase.BACKWARD): 4.0,
    ("middle", Phase.BACKWARD): 1.0,
    ("encoder", Phase.BACKWARD): 5.0,
    ("Optimizer", Phase.OPTIMIZER): 1.5,
    OUTSIDE_ROW: 0.5,
}
LINK_MS = 2.0
"""The communication itself."""
PARENTS: dict[SpanKey, SpanKey] = {
    (name, phase): ("Model", phase)
    for name in ("encoder", "middle", "decoder")
    for phase in (Phase.FORWARD, Phase.BACKWARD)
}


def noisy_rows(seed: int, ranks: int, steps: int) -> list[dict[SpanKey, Times]]:
    """Draw the rows of healthy ranks in milliseconds: unequal processors, heavy tails, stalls anywhere."""
    drawn = np.random.default_rng(seed)
    speeds = 1 + 0.02 * drawn.standard_normal(ranks)
    found = []
    for rank in range(ranks):
        rows = {}
        for key, usual in USUAL_MS.items():
            jitter = np.exp(0.1 * drawn.standard_normal(steps))
            waits = 3.0 * drawn.pareto(2.5, steps) * (drawn.random(steps) < 0.03 + 0.02 * usual)
            rows[key] = usual * speeds[rank] * jitter + np.minimum(waits, 40.0)
        found.append(rows)
    return found


def make_records(rows: Sequence[dict[SpanKey, Times]], steps: Sequence[int] | None = None) -> list[RankRecord]:
    """Make the records of ranks that leave each step together: every rank waits for the last one."""
    arrivals = np.stack([np.sum(list(of_rank.values()), axis=0) for of_rank in rows])
    lengths = arrivals.max(axis=0) + LINK_MS
    numbers = np.asarray(range(1, len(lengths) + 1) if steps is None else steps, dtype=np.int64)
    records = []
    for of_rank, arrival in zip(rows, arrivals, strict=True):
        own = np.sum([ms for key, ms in of_rank.items() if key != OUTSIDE_ROW], axis=0)
        every = {**of_rank, COMM_ROW: lengths - arrival}
        ns = {key: (ms * MS).astype(np.int64) for key, ms in every.items()}
        whole = (lengths * MS).astype(np.int64)
        records.append(RankRecord(numbers, whole, (own * MS).astype(np.int64), ns, PARENTS))
    return records


def with_fault(
    seed: int, key: SpanKey, ms: float, when: Callable[[int], bool], *, ranks: int = 4, steps: int = 60, rank: int = 2
) -> list[RankRecord]:
    """Make the records of ranks of which one takes ``ms`` longer in one row, in the steps in which ``when`` holds."""
    rows = noisy_rows(seed, ranks, steps)
    rows[rank][key] = rows[rank][key] + ms * np.array([when(step) for step in range(1, steps + 1)])
    return make_records(rows)
