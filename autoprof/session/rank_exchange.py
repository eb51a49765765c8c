"""The exchange with the other ranks, as a part of the session that follows its steps.

Its store is that of the training's process group. The connection is autoprof's own where torch can make one: a call of
ours must not delay one of the training's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

import torch

from ..base.allowance import Allowance
from ..base.frame import FrameRun
from ..base.notes import Notes
from ..base.process.ranks import rank, world_size
from ..base.summary import Summary
from ..ranks import Exchange, RankPlace
from ..ranks.table import RankState
from ..resolve.observer import Observer
from .controller import Controller


def make_exchange(controller: Controller, allowance: Allowance, meeting: str | None) -> Exchange | None:
    """Return the exchange of this rank; None where it trains alone.

    The ranks find one another under the name ``meeting``; without it, by the number of the session in its process.
    """
    if world_size() <= 1:
        return None
    place = RankPlace(rank(), world_size())
    return Exchange(place, controller, partial(_connect, place, meeting), allowance)


def _connect(place: RankPlace, meeting: str | None, session: int) -> Any | None:
    """Return the store for a session, the ``session``-th of this process; None as long as there is no process group.

    Raises ``RuntimeError`` where the process group has no store that can be used.
    """
    distributed: Any = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    group = RankPlace(distributed.get_rank(), distributed.get_world_size())
    if group != place:
        raise RuntimeError(
            f"the launcher gave this process rank {place.rank} of {place.world_size}, the process group rank "
            f"{group.rank} of {group.world_size}; call init_process_group before autoprof.instrument"
        )
    store: Any = distributed.distributed_c10d._get_default_store()
    inner = store
    while isinstance(inner, distributed.PrefixStore):
        inner = inner.underlying_store
    if not isinstance(inner, distributed.TCPStore):
        raise RuntimeError(f"its store is a {type(inner).__name__}; ranks are compared during the run over a TCPStore")
    # The store's server has a limited number of connections; older versions of torch cannot make one.
    if hasattr(store, "clone") and (place.rank == 0 or place.world_size <= 512):
        store = store.clone()
        # The longest time for a call of the store; then the exchange ends.
        store.set_timeout(timedelta(seconds=10))
    return distributed.PrefixStore(f"autoprof/{session if meeting is None else meeting}", store)


class RankExchange(Observer):
    """Give the frames of a run to the exchange; end it with the run; name the ranks that are not there."""

    provides = "states of the ranks"

    def __init__(self, exchange: Exchange, *, shows: bool) -> None:
        self._exchange = exchange
        self._shows = shows

    def frames(self, run: FrameRun) -> None:
        """Take frames."""
        for frame in run.frames:
            self._exchange.work.add(frame)

    def annotate(self, summary: Summary) -> Summary:
        """Return the summary with a note on the ranks that are late or missing."""
        notes = tuple(self._describe()) if self._shows else ()
        return replace(summary, notes=(*summary.notes, *notes)) if notes else summary

    def _describe(self) -> Iterator[str]:
        exchange = self._exchange
        if exchange.failure is not None:
            yield (
                f"the exchange with the other ranks has ended: {exchange.failure}. `autoprof show RUN` compares them "
                "once all have ended"
            )
        if not exchange.connected:
            return
        states = exchange.states()
        for status, described in DESCRIBED.items():
            found = [state for state in states if state.status == status]
            if found:
                yield f"{_name(found)} {described}"

    def finish(self, *, complete: bool) -> dict[str, Any]:
        """Exchange the last messages, which the last summary compares, and end the thread; return its cost."""
        exchange = self._exchange
        exchange.finish()
        return {"exchange": {"messages": exchange.messages, "thread_ns": exchange.work_ns, "failure": exchange.failure}}


class LateGroup(Observer):
    """Note a process group that is made after the session was opened: its ranks are not compared."""

    provides = "note on a late process group"

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def frames(self, run: FrameRun) -> None:
        """Look for a group after each pass."""
        if world_size() > 1:
            self._notes.warn_once(
                "the process group was made after autoprof.instrument: each rank records a run of its own, and the "
                "ranks are not compared; call init_process_group first, or start the ranks by torchrun"
            )


DESCRIBED: Final = {
    "missing": "has not sent a message: autoprof is not running there, or cannot reach the store of the process group",
    "late": "is late or has ended: its last message is missing, and its last steps are not compared",
}
"""What a note says of ranks by their status."""


def _name(states: list[RankState]) -> str:
    """Return the ranks with their last steps, as the subject of a sentence."""
    max_named = 4
    named = [f"{state.rank}" + (f" (last step {state.step})" if state.step else "") for state in states[:max_named]]
    return "rank " + ", ".join(named) + (f" and {len(states) - max_named} more" if len(states) > max_named else "")
