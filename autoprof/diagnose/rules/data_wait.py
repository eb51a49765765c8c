"""Rule ``data-wait``: each step waits for its batch.

Finds, above a bound:

- the exposed wait for a batch, the lines that ran then, and workers that are started again in each epoch: 10 % of the
  step.
"""

from __future__ import annotations

from typing import Final

from ...base.frame import Phase
from ...base.stats.intervals import Interval
from ...base.summary import Finding
from ...base.units import count, format_ms
from ...probes.stacks import OF_SAMPLER
from .. import (
    Evidence,
    ExceededBound,
    Experiment,
    Rule,
    abstain,
    describe_longest,
    dominant_name,
    threshold_rows,
    threshold_time,
)  # fmt: skip
from .._bounds import GOOD_PART, MIN_SHARE, MOST
from .._long_steps import restarts_ns

_CHEAPER: Final = (
    "or make each sample cheaper (decode and crop once, store the result); where samples are tiny, a dataset with "
    "__getitems__ reads a whole batch at once"
)
_LOAD_AHEAD: Final = (
    f"let the loader work ahead: more num_workers, persistent_workers, a larger prefetch_factor; {_CHEAPER}"
)
_LOAD_BESIDE: Final = (
    "no worker process loads the batches: a torch DataLoader does with num_workers=; any other source of batches can "
    f"fetch the next one on a thread while the model trains; {_CHEAPER}"
)
_MAKE_ONCE: Final = (
    "make the loader once, before the loop, and take all batches from one iterator: each new one starts its worker "
    "processes again"
)
_SAMPLE_LESS: Final = (
    "the sampler draws in the main process, and workers do not make it faster: draw the indices once for an epoch or "
    "several, not for each batch, and only as many as are used (num_samples=)"
)
_MOVE_TO_WORKERS: Final = (
    "this code runs in the main process, where more workers do not make it faster: move it into the dataset or "
    "collate_fn, which the workers run"
)
_KEEP_WORKERS: Final = "set persistent_workers=True: the workers are then started once, not in each epoch"
_OPEN_AHEAD: Final = (
    "open the next file or shard, or do the other work of these batches, before it is needed: in worker processes "
    "(num_workers and prefetch_factor of a torch DataLoader), or on a thread while the model trains"
)


def judge(run: Evidence) -> Finding | None:
    """Judge the exposed wait for the loader; batches that workers prepared in time cause none."""
    rows = run.rows.get(Phase.DATA)
    if rows is None:
        advice = (
            "nothing to do if the batches lie in memory; a torch DataLoader is found automatically; with "
            "autoprof.instrument wrap any other one: session.loader(loader); under autoprof run put its fetch inside "
            'autoprof.span("load")'
        )
        return abstain("data-wait", "data spans", advice)
    found, started_ns = threshold_rows("data-wait", run, rows), restarts_ns(run)
    restarts = not isinstance(found, ExceededBound) and threshold_time(
        "data-wait", run, Interval.exact(started_ns), started_ns, MIN_SHARE, Phase.DATA
    )
    found = restarts or found  # starts are counted, however long the other phases of these steps are
    if not isinstance(found, ExceededBound):
        return found
    loader = dict(run.summary.loader)
    table = run.facts.stacks.get(f"{Phase.DATA} {max(rows, key=lambda row: row.self_ns).name}")
    lines = f": {table.describe(found.mean_share)}" if table is not None and table.named else ""
    ahead = _LOAD_AHEAD if loader else _LOAD_BESIDE
    who, advice = ("each step", ahead) if found.rare is None and not restarts else ("training", _OPEN_AHEAD)
    if restarts or (found.rare is not None and 2 * loader.get("starts", 0) >= len(found.rare.steps)):
        advice = _KEEP_WORKERS
    if loader.get("starts", 0) >= MOST * max(loader.get("fetches", 0), 1):
        advice = _MAKE_ONCE
    shares = [] if table is None else [(line, table.share(line)) for line in table.named]
    if sum(share for line, share in shares if line.function.endswith(OF_SAMPLER)) >= GOOD_PART:
        advice = _SAMPLE_LESS
    elif advice == _LOAD_AHEAD and loader.get("workers"):
        # A line that asks the loader waits for the workers.
        beside = sum(share for line, share in shares if line.call not in ("__next__", "__iter__"))
        advice = _MOVE_TO_WORKERS if beside >= GOOD_PART else advice
    return found.finding(
        f"{who} waits {found} for its batch{describe_longest(run, rows)}{_describe_prefetch(loader)}{lines}"
        f"{describe_restarts(run)}",
        advice,
        name=dominant_name(rows),
        evidence=({"loader": loader, "restarts": loader.get("starts", 0)} if loader else {})
        | ({} if table is None else table.evidence()),
    )


def _describe_prefetch(loader: dict[str, int]) -> str:
    if not loader.get("fetches"):
        return ""
    return (
        f"; {loader['unready']} of {loader['fetches']} fetches found no batch ready (num_workers={loader['workers']})"
    )


def describe_restarts(run: Evidence) -> str:
    """Return the clause on worker processes that were started again; empty where they were started once."""
    loader = run.summary.loader
    starts = loader.get("starts", 0)
    if not starts:
        return ""
    batches = round((starts + loader.get("fetches", 0)) / starts)
    often = f"about every {batches} batches" if batches > 1 else "for each batch"
    advice = "" if starts >= MOST * loader.get("fetches", 0) else ": persistent_workers=True keeps them between epochs"
    return (
        f"; {count(loader['workers'], 'loader worker')} started again {often}, "
        f"{format_ms(loader['start_ns'] / starts)} until the first batch of each start{advice}"
    )


def loader_experiment(finding: Finding) -> Experiment:
    """Return the change of the loader: to keep its workers where they are started again, or else to have more."""
    if finding.evidence.get("restarts"):
        return Experiment("loader.persistent_workers", value=True)
    return Experiment("loader.num_workers", "increase")


RULE = Rule("data-wait", judge, order=10, experiment=loader_experiment)
