"""The store of the training's process group, through which ranks exchange their messages without waiting.

The connection is autoprof's own where torch can make one: a call of ours must not delay one of the training's.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch


def open_store(session: int, rank: int, world_size: int) -> Any:
    """Return the store for a session, the ``session``-th of this process.

    Raises ``RuntimeError`` where the process group has no store that can be used.
    """
    from torch.distributed.distributed_c10d import _get_default_store

    distributed: Any = torch.distributed
    store: Any = _get_default_store()
    inner = store
    while isinstance(inner, distributed.PrefixStore):
        inner = inner.underlying_store
    if not isinstance(inner, distributed.TCPStore):
        raise RuntimeError(f"its store is a {type(inner).__name__}; ranks are compared during the run over a TCPStore")
    # The store's server has a limited number of connections; older versions of torch cannot make one.
    if hasattr(store, "clone") and (rank == 0 or world_size <= 512):
        store = store.clone()
        # The longest time for a call of the store; then the exchange ends.
        store.set_timeout(timedelta(seconds=10))
    return distributed.PrefixStore(f"autoprof/{session}", store)
