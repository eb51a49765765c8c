"""Rule ``data-wait``: each step waits for its batch."""

from __future__ import annotations

from typing import Final

from ..._units import NS_PER_S
from ...frame import Phase
from ...summary import Finding
from .._evidence import Evidence
from .._experiment import Experiment
from .._rule import Rule
from .._thresholding import ExceededBound, abstain, describe_longest, dominant_name, threshold_rows

MAX_SHARE: Final = 0.10
"""A loader that keeps up is waited for by microseconds; a tenth of the step is a machine idle one hour in ten."""
TINY_SAMPLE_NS: Final = 10_000
"""Below this loader time per sample Python's overhead is a large part of it. Measured on a CPU, with collation: 1 to
4 µs for datasets that only index, 0.2 µs for one that reads a whole batch at once."""
_LARGER_SAMPLES: Final = (
    "; its samples are so small that much of that time is Python's overhead per sample: use larger samples, several "
    "packed into one, or a dataset with __getitems__, which reads a whole batch at once"
)

_NO_LOADER: Final = (
    "nothing to do if the batches lie in memory; a torch DataLoader is found automatically; with autoprof.instrument "
    'wrap any other one: session.loader(loader); under autoprof run put its fetch inside autoprof.span("load")'
)


def judge(run: Evidence) -> Finding | None:
    """Judge the exposed wait for the loader; batches that workers prepared in time cause none."""
    rows = run.rows.get(Phase.DATA)
    if rows is None:
        return abstain("data-wait", "data spans", _NO_LOADER)
    found = threshold_rows("data-wait", run, rows, MAX_SHARE)
    if not isinstance(found, ExceededBound):
        return found
    loader = dict(run.summary.loader)
    table = run.facts.stacks.get(f"{Phase.DATA} {max(rows, key=lambda row: row.self_ns).name}")
    lines = f": {table.describe(found.mean_share)}" if table is not None and table.named else ""
    tiny_ns = _tiny_sample_ns(run, found)
    return found.finding(
        f"each step waits {found} for its batch{describe_longest(run, rows)}{_describe_prefetch(loader)}{lines}",
        "let the loader work ahead: more num_workers, persistent_workers, a larger prefetch_factor; or make each "
        "sample cheaper (decode and crop once, store the result)" + (_LARGER_SAMPLES if tiny_ns else ""),
        name=dominant_name(rows),
        evidence=({"loader": loader} if loader else {})
        | ({"sample_ns": round(tiny_ns)} if tiny_ns else {})
        | ({} if table is None else table.evidence()),
    )


def _tiny_sample_ns(run: Evidence, found: ExceededBound) -> float | None:
    """Return the most loader time per sample if it is at most ``TINY_SAMPLE_NS``; None otherwise, or if unknown.

    Without workers it is the wait; each worker cannot have taken longer than the step.
    """
    summary = run.summary
    if summary.throughput is None or summary.throughput_unit != "samples":
        return None
    samples = summary.throughput * summary.step_mean_ns / NS_PER_S
    workers = summary.loader.get("workers", 0)
    sample_ns = (workers * summary.step_mean_ns if workers else found.mean_ns) / max(samples, 1)
    return sample_ns if sample_ns <= TINY_SAMPLE_NS else None


def _describe_prefetch(loader: dict[str, int]) -> str:
    if not loader.get("fetches"):
        return ""
    return (
        f"; {loader['unready']} of {loader['fetches']} fetches found no batch ready (num_workers={loader['workers']})"
    )


RULE = Rule(
    "data-wait",
    judge,
    order=10,
    experiment=Experiment("loader.num_workers", "increase"),
)
