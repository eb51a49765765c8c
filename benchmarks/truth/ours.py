"""autoprof's side of the comparison: one step's frame as nanoseconds by module and phase."""

from __future__ import annotations

from autoprof import Phase, StepFrame
from autoprof.base.frame import TRAINING_LANE

from .account import Account, Key


def account_of(frame: StepFrame) -> Account:
    """Add a frame's spans up by fqn; a span inside one of its own counts once, recompute is taken out of backward."""
    layout, total = frame.layout, frame.total_ns.tolist()
    own = layout.self_ns(frame.total_ns).tolist()
    account = Account()
    holders: list[frozenset[Key]] = []
    for i, (fqn, phase, parent) in enumerate(zip(layout.fqns, layout.phases, layout.parents, strict=True)):
        around = holders[parent] if parent >= 0 else frozenset[Key]()
        key = ("" if fqn is None else fqn, phase)
        backward = key if fqn is not None else ("(backward)", phase)
        holders.append(around | {backward})
        if layout.lanes[i] != TRAINING_LANE:
            continue
        if phase is Phase.BACKWARD:
            for one in holders[i]:
                if one[1] is phase:
                    account.modules[one] = account.modules.get(one, 0) + own[i]
            if all(one[1] is not phase for one in around):
                account.backward_ns += total[i]
        elif fqn is not None and phase in (Phase.FORWARD, Phase.RECOMPUTE) and key not in around:
            account.modules[key] = account.modules.get(key, 0) + total[i]
    return account
