"""Rules on where the step's time goes: loader, copies, optimizer, communication."""

from __future__ import annotations

from typing import Final

from .._units import NS_PER_S, format_bytes, format_percent
from ..frame import Phase
from ..summary import Finding, Row
from .evidence import Evidence, Interval
from .optimizers import faster, offloaded, smaller
from .signal_rules import straggler
from .thresholding import Weighed, abstain, most, place, spent, stand, weigh_rows
from .thresholds import COMM_SHARE, DATA_SHARE, H2D_SHARE, OPTIMIZER_SHARE, STATE_FILLED, STATE_SHARE, TINY_SAMPLE_NS


def data_wait(seen: Evidence) -> Finding | None:
    """Waiting for the loader: the exposed wait only, for what workers prepared ahead is not in the span."""
    rows = seen.rows.get(Phase.DATA)
    if rows is None:
        return abstain("data-wait", "data spans", "wrap the loader: for batch in session.loader(loader)")
    weighed = weigh_rows("data-wait", seen, rows, DATA_SHARE)
    if not isinstance(weighed, Weighed):
        return weighed
    loader = dict(seen.summary.loader)
    tiny = _tiny_sample(seen, weighed)
    return weighed.finding(
        f"each step waits {spent(weighed)} for its batch{most(seen, rows)}{_prefetched(loader)}",
        "let the loader work ahead: more num_workers, persistent_workers, a larger prefetch_factor; or make what it "
        "does for a sample cheaper (decode and crop once, keep the result)" + (_LARGER if tiny else ""),
        name=place(rows),
        evidence=({"loader": loader} if loader else {}) | ({"sample_ns": round(tiny)} if tiny else {}),
    )


_LARGER: Final = (
    "; its samples are so small that much of that is Python's way to each: larger samples, several packed into one, or "
    "a dataset with __getitems__, which reads a whole batch at once"
)


def _tiny_sample(seen: Evidence, weighed: Weighed) -> float | None:
    """Return what a sample costs the loader at most, where that is next to nothing; None where it is not, or unknown.

    Without workers it is what was waited; workers cannot have taken longer than there was time.
    """
    run = seen.summary
    if run.throughput is None or run.throughput_unit != "samples":
        return None
    samples = run.throughput * run.step_mean_ns / NS_PER_S
    workers = run.loader.get("workers", 0)
    each_ns = (workers * run.step_mean_ns if workers else weighed.mean_ns) / max(samples, 1)
    return each_ns if each_ns <= TINY_SAMPLE_NS else None


def _prefetched(loader: dict[str, int]) -> str:
    if not loader:
        return ""
    found = f"{loader['unready']} of {loader['fetches']} fetches found no batch ready"
    return f"; {found} (num_workers={loader['workers']})"


def h2d_copy(seen: Evidence) -> Finding | None:
    """Copies of the batch to the device that the step waits for."""
    rows = seen.rows.get(Phase.H2D)
    if rows is None:
        return abstain("h2d-copy", "h2d spans", "nothing to do where the model trains on the CPU")
    weighed = weigh_rows("h2d-copy", seen, rows, H2D_SHARE)
    if not isinstance(weighed, Weighed):
        return weighed
    return weighed.finding(
        f"copies to the device take {spent(weighed)}{most(seen, rows)}",
        f"{_offload(seen)}pin_memory=True in the loader and .to(device, non_blocking=True), and copy the next batch "
        "while this one trains; send fewer bytes (uint8 images, normalised on the device)",
        name=place(rows),
    )


def optimizer(seen: Evidence) -> Finding | None:
    """An optimizer that takes more time than reading and writing the parameters once explains, or whose state crowds
    a full memory."""
    rows = seen.rows.get(Phase.OPTIMIZER)
    if rows is None:
        remedy = "pass optimizer= to autoprof.instrument, or use a torch optimizer"
        return _large_state(seen) or abstain("optimizer", "optimizer spans", remedy)
    weighed = weigh_rows("optimizer", seen, rows, OPTIMIZER_SHARE)
    if not isinstance(weighed, Weighed):
        return _large_state(seen) or weighed
    facts = seen.facts.optimizers or ()
    state = sum(fact.state_bytes for fact in facts)
    held = f"; its state holds {format_bytes(state)}{_of_peak(seen, state)}" if state else ""
    less = smaller(facts)
    return weighed.finding(
        f"the optimizer takes {spent(weighed)}{held}",
        _offload(seen) + faster(facts) + (f". For less memory: {less}" if less and _state_share(seen) else ""),
        name=place(rows),
        # Not all of it can be won, and nobody measured how much: what is above the bound is.
        gain_ns=weighed.mean_ns - OPTIMIZER_SHARE * seen.summary.step_mean_ns,
        evidence={"state_bytes": state, "kinds": [fact.kind for fact in facts]} if facts else {},
    )


def _offload(seen: Evidence) -> str:
    """Say what an optimizer on the CPU costs, and whether the device has room for it; empty where there is none."""
    moved = [one for one in seen.facts.optimizers or () if offloaded(one, seen.facts.surroundings.device)]
    if not moved:
        return ""
    whole = sum(one.parameter_bytes for one in moved)
    needed = whole + sum(one.state_bytes for one in moved)
    peak, capacity = seen.summary.memory.get("peak_bytes"), seen.facts.memory_capacity_bytes
    room = "how much room the device has is not known here" if not peak or not capacity else (
        f"there is room for it beside the peak ({format_bytes(capacity - peak)} of {format_bytes(capacity)} free)"
        if capacity - peak >= needed
        else f"all of it does not fit beside the peak ({format_bytes(max(capacity - peak, 0))} free)"
    )  # fmt: skip
    return (
        f"the optimizer's {format_bytes(needed)} lie on the CPU, the model on a device: gradients go there and "
        f"parameters come back over PCIe in every optimizer step ({format_bytes(whole)} as the optimizer holds them). "
        f"Without that offload the device updates them itself; {room}. Else offload less (DeepSpeed's ratio), with "
        "pin_memory: true; "
    )


def _state_share(seen: Evidence) -> float:
    """Return what the state is of a device's peak; 0 where nobody knows. What is offloaded is no part of it."""
    peak, device = seen.summary.memory.get("peak_bytes"), seen.facts.surroundings.device
    here = [fact.state_bytes for fact in seen.facts.optimizers or () if not offloaded(fact, device)]
    return sum(here) / peak if peak else 0.0


def _of_peak(seen: Evidence, state: int) -> str:
    share = _state_share(seen)
    return f", {format_percent(share)} of the peak" if share else ""


def _large_state(seen: Evidence) -> Finding | None:
    """Judge the state's memory: only on a device that is well filled does it keep anybody from a larger batch."""
    facts, peak = seen.facts.optimizers or (), seen.summary.memory.get("peak_bytes")
    capacity, share = seen.facts.memory_capacity_bytes, _state_share(seen)
    if not share or peak is None or not capacity:
        return None
    filled = peak / capacity
    standings = {stand(Interval(one, one, one), bound) for one, bound in ((share, STATE_SHARE), (filled, STATE_FILLED))}
    state = sum(fact.state_bytes for fact in facts)
    evidence = {
        "state_bytes": state,
        "peak_bytes": peak,
        "share": round(share, 4),
        "bound": STATE_SHARE,
        "filled": round(filled, 4),
        "filled_bound": STATE_FILLED,
        "kinds": [fact.kind for fact in facts],
    }
    if "below" in standings:
        return None
    if "near" in standings:
        missing = (
            f"inconclusive: the state is {format_percent(share)} of a peak of {format_percent(filled)}, near a bound"
        )
        return abstain("optimizer", missing, "a longer run, or a run with the batch that is wanted", evidence)
    less = smaller(facts)
    return Finding(
        "optimizer",
        "warning",
        f"its state holds {format_bytes(state)}, {format_percent(share)} of a peak that fills {format_percent(filled)} "
        "of the memory",
        f"{less}: room for a larger batch, or for activations without checkpointing"
        if less
        else "no 8-bit form of this optimizer is known here; sharded (ZeRO, FSDP), each rank holds a part of its state",
        evidence=evidence,
    )


def comm_exposed(seen: Evidence) -> Finding | None:
    """Communication that the step waits for."""
    rows = seen.rows.get(Phase.COMM)
    if rows is None:
        return abstain("comm-exposed", "comm spans", "nothing to do where one process trains alone")
    weighed = weigh_rows("comm-exposed", seen, rows, COMM_SHARE)
    if weighed is None or _waits_for_a_rank(seen, rows):
        return None
    if not isinstance(weighed, Weighed):
        return weighed
    blocked = seen.facts.surroundings.without_p2p
    direct = f"unset {blocked}: without it GPUs of one machine talk through its memory; " if blocked else ""
    return weighed.finding(
        f"communication takes {spent(weighed)} that no computation hides",
        f"{direct}let it overlap with backward (DDP buckets, FSDP prefetch), accumulate gradients under no_sync(), or "
        "send less (bfloat16 gradients)",
        name=place(rows),
        evidence={"p2p": blocked} if blocked else {},
    )


def _waits_for_a_rank(seen: Evidence, rows: list[Row]) -> bool:
    """Say whether most of what communication takes is waiting for the rank that ``straggler`` names: once is enough."""
    ranks, said = seen.facts.ranks, straggler(seen)
    if ranks is None or said is None or said.severity == "info":
        return False
    longer_ns = ranks.own_ns[ranks.rank] - ranks.own_ns[seen.facts.rank]
    return 2 * longer_ns * seen.summary.steps >= sum(row.self_ns for row in rows)
