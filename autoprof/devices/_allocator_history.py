"""The recording of allocations by torch's native CUDA allocator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch


class AllocatorHistory:
    """The one recording of the process: ``stop`` ends whatever records."""

    _observed: ClassVar[bool] = False
    """Whether this process has its out-of-memory observer: one for all sessions, because torch cannot remove it."""

    def available(self) -> bool:
        """Return whether there is a device whose allocator can record."""
        return torch.cuda.is_available()

    def recording(self) -> bool:
        """Return whether a recording already runs."""
        return bool(torch._C._cuda_isHistoryEnabled())

    def start(self, *, entries: int, stacks: str) -> None:
        """Record allocations from now on."""
        memory: Any = torch.cuda.memory
        memory._record_memory_history(max_entries=entries, stacks=stacks)

    def stop(self) -> None:
        """Stop recording."""
        memory: Any = torch.cuda.memory
        memory._record_memory_history(None)

    def snapshot(self) -> dict[str, Any]:
        """Return the allocator's blocks and the recorded history."""
        found: dict[str, Any] = torch.cuda.memory._snapshot()
        return found

    def on_oom(self, call: Callable[[], None]) -> None:
        """Call the function each time memory has run out, before torch raises. It cannot be unregistered."""
        if not AllocatorHistory._observed:
            AllocatorHistory._observed = True
            torch._C._cuda_attach_out_of_memory_observer(lambda *_facts: call())  # type: ignore[attr-defined]
