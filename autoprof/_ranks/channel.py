"""A channel through the store of the training's process group: each rank puts its messages there, rank 0 reads them.

No rank waits for another: a read asks only for keys that exist. The connection is autoprof's own, because a store
serves one call at a time and a call of ours must not delay one of the training's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch


class Channel(Protocol):
    """Texts under keys, which every rank puts and gets without waiting for another."""

    grows: bool
    """Whether it keeps the former values of a key, as a file does: messages must become rare."""

    def put(self, key: str, value: bytes) -> None:
        """Set a key."""

    def get(self, keys: Sequence[str]) -> list[bytes]:
        """Return the values of keys that exist."""

    def join(self, rank: int) -> None:
        """Add a rank to those that have put their first message."""

    def joined(self, missing: Iterable[int]) -> set[int]:
        """Return which of the missing ranks have joined."""

    def has(self, key: str) -> bool:
        """Return whether a key is set."""


class StoreChannel:
    """A channel through a store of ``torch.distributed``. Raises ``RuntimeError`` where its server has gone."""

    def __init__(self, store: Any, *, grows: bool = False) -> None:
        self.grows = grows
        self._store = store
        self._extended = bool(store.has_extended_api())

    def put(self, key: str, value: bytes) -> None:
        """Set a key."""
        self._store.set(key, value)

    def get(self, keys: Sequence[str]) -> list[bytes]:
        """Return the values of keys that exist."""
        keys_at_once = 256
        if not self._extended:
            return [self._store.get(key) for key in keys]
        parts = [keys[at : at + keys_at_once] for at in range(0, len(keys), keys_at_once)]
        return [bytes(value) for part in parts for value in self._store.multi_get(list(part))]

    def join(self, rank: int) -> None:
        """Add a rank to those that have put their first message."""
        if self._extended:
            self._store.append("joined", f"{rank},")
        else:
            self._store.set(f"joined/{rank}", b"1")

    def joined(self, missing: Iterable[int]) -> set[int]:
        """Return which of the missing ranks have joined."""
        if not self._extended:
            return {rank for rank in missing if self._store.check([f"joined/{rank}"])}
        if not self._store.check(["joined"]):
            return set()
        return {int(rank) for rank in self._store.get("joined").split(b",") if rank} & set(missing)

    def has(self, key: str) -> bool:
        """Return whether a key is set."""
        return bool(self._store.check([key]))


def open_channel(session: int, rank: int, world_size: int) -> StoreChannel | None:
    """Return the channel of a session, the ``session``-th of this process; None where this must be called again later.

    Raises ``RuntimeError`` where the process group has no store that can be used.
    """
    # The longest time for a call of the store; then the exchange ends.
    timeout = timedelta(seconds=10)
    from torch.distributed.distributed_c10d import _get_default_store

    distributed: Any = torch.distributed
    shared: Any = _get_default_store()
    inner = shared
    while isinstance(inner, distributed.PrefixStore):
        inner = inner.underlying_store
    prefix = f"autoprof/{session}"
    if isinstance(inner, distributed.FileStore):
        return StoreChannel(distributed.PrefixStore(prefix, shared), grows=True)
    if not isinstance(inner, distributed.TCPStore):
        raise RuntimeError(f"its store is a {type(inner).__name__}; ranks are compared over a TCPStore or a FileStore")
    # Ranks above which the training's own connections are used: the store's server has a limited number of them.
    if rank and world_size > 512:
        return StoreChannel(distributed.PrefixStore(prefix, shared))
    if hasattr(shared, "clone"):
        own = shared.clone()
    else:
        nonce = _nonce(shared, rank)
        if nonce is None:
            return None
        prefix = f"{prefix}/{nonce}"
        own = distributed.TCPStore(inner.host, inner.port, None, False, timeout, wait_for_workers=False)
    own.set_timeout(timeout)
    return StoreChannel(distributed.PrefixStore(prefix, own))


def _nonce(store: Any, rank: int) -> str | None:
    """Return a text that names this start of the training: a launcher's store outlives a restart."""
    # The key under which rank 0 names the run, for versions of torch whose stores cannot be cloned.
    nonce = "autoprof/run"
    if rank == 0 and not store.check([nonce]):
        from secrets import token_hex

        store.set(nonce, token_hex(8))
    return store.get(nonce).decode() if store.check([nonce]) else None
