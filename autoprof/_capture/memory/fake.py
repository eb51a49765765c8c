"""A caching allocator in the hands of a test: it counts as torch's does, and gives no memory to anybody."""

from __future__ import annotations

from .sources import Memory


class FakeAllocator(Memory):
    """Hand out blocks from a cache that is never put together again, and count what torch's allocator counts.

    A request takes the smallest free block that holds it, split if it is larger; else new memory is reserved. Where
    there is none left the cache is given back, which counts as a retry; where that is too little, memory has run out
    (``MemoryError``). ``base_bytes`` are there from the start: parameters, say.
    """

    def __init__(self, capacity_bytes: int, base_bytes: int = 0) -> None:
        self._capacity = capacity_bytes
        self._free: list[int] = []
        self.allocated = self.peak = self.reserved = base_bytes
        self.retries = self.ooms = 0

    def allocate(self, count: int) -> int:
        """Take ``count`` bytes; return the block, for ``free``."""
        fitting = [block for block in self._free if block >= count]
        if fitting:
            block = min(fitting)
            self._free.remove(block)
            if block > count:
                self._free.append(block - count)
        else:
            if self.reserved + count > self._capacity:
                self.retries += 1
                self.reserved -= sum(self._free)
                self._free.clear()
            if self.reserved + count > self._capacity:
                self.ooms += 1
                raise MemoryError(f"{count} bytes of {self._capacity}")
            self.reserved += count
        self.allocated += count
        self.peak = max(self.peak, self.allocated)
        return count

    def free(self, block: int) -> None:
        """Give a block back to the cache."""
        self.allocated -= block
        self._free.append(block)

    def reset_peak(self) -> None:
        """Do what ``torch.cuda.reset_peak_memory_stats`` does."""
        self.peak = self.allocated

    def level_bytes(self) -> int:
        """Return what is allocated."""
        return self.allocated

    def at_mark(self) -> tuple[int, ...]:
        """Return what is allocated, the running peak, what is reserved."""
        return self.allocated, self.peak, self.reserved

    def at_step_end(self) -> dict[str, int]:
        """Return the readings: they cost nothing, so at each step."""
        return self.readings()

    def readings(self) -> dict[str, int]:
        """Return what a CUDA device reports."""
        found = {"allocated_bytes": self.allocated, "reserved_bytes": self.reserved, "peak_bytes": self.peak}
        found["inactive_split_bytes"] = sum(self._free)
        counts = {"alloc_retries": self.retries, "ooms": self.ooms}
        return found | {key: count for key, count in counts.items() if count}

    def capacity_bytes(self) -> int | None:
        """Return all there is."""
        return self._capacity

    def close(self) -> None:
        """Hold nothing open."""
