"""Learn whether a loader's batches feed training or validation, from the forward that follows each fetch."""

from __future__ import annotations

import weakref
from contextlib import suppress
from enum import Enum
from typing import Any


class Feeds(Enum):
    """The use of a loader's batches."""

    TRAINING = "training"
    VALIDATION = "validation"
    BOTH = "both"


class LoaderUse:
    """The known loaders. Each is kept by a weak reference, and known by the dataset that it reads."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], Feeds]] = {}

    def of(self, source: Any) -> Feeds | None:
        """Return the use of a loader; None while it is unknown."""
        known = self._known.get(id(source))
        return known[1] if known is not None and known[0]() is source else None

    def learn(self, source: Any, feeds: Feeds) -> None:
        """Remember a use of this loader."""
        # Loaders remembered at a time.
        most = 64
        known = self.of(source)
        if known is feeds or known is Feeds.BOTH:
            return
        if len(self._known) >= most:
            self._known = {key: entry for key, entry in self._known.items() if entry[0]() is not None}
        if len(self._known) < most or known is not None:
            with suppress(TypeError):  # a list has no weak references, so its use is not remembered
                self._known[id(source)] = weakref.ref(source), feeds if known is None else Feeds.BOTH
