"""An allocator and values of a fake device."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from autoprof.devices import Memory
from autoprof.probes.sync_calls import METHODS
from autoprof.testing import FakeDevice


class FakeAllocator(Memory):
    """Hand out blocks from a cache whose blocks are never merged, and keep the counters of torch's allocator.

    A request takes the smallest free block that holds it, split if it is larger; else new memory is reserved. Beyond
    the capacity the cache is freed, which counts as a retry; if that is not enough, memory has run out
    (``MemoryError``). ``base_bytes`` are allocated from the start, for example parameters.
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
        """Return a block to the cache."""
        self.allocated -= block
        self._free.append(block)

    def level_bytes(self) -> int:
        """Return the allocated bytes."""
        return self.allocated

    def at_mark(self) -> tuple[int, ...]:
        """Return the allocated bytes and their running peak."""
        return self.allocated, self.peak

    def at_step_end(self) -> dict[str, int]:
        """Return the readings of every step."""
        return self.readings()

    def readings(self) -> dict[str, int]:
        """Return the readings of a CUDA device."""
        found = {"allocated_bytes": self.allocated, "reserved_bytes": self.reserved, "peak_bytes": self.peak}
        counts = {"alloc_retries": self.retries, "ooms": self.ooms}
        return found | {key: count for key, count in counts.items() if count}

    def capacity_bytes(self) -> int | None:
        """Return the capacity."""
        return self._capacity

    def close(self) -> None:
        """Do nothing: the allocator holds no resource."""


def value_on(device: FakeDevice, tensor: Tensor) -> Tensor:
    """Return the tensor's values as the device's own: a method that reads them has the host wait for the stream.

    Operators on it make values of the device, too; its gradients are not followed.
    """

    class DeviceValue(Tensor):
        """A tensor of the device."""

        @classmethod
        def __torch_function__(
            cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            if getattr(function, "__name__", "") in METHODS:
                device.wait_here()
            call: Any = super().__torch_function__
            made = call(function, types, args, dict(kwargs or {}))
            if isinstance(made, DeviceValue):
                device.move(made, device.place[0])
            return made

    made = tensor.detach().as_subclass(DeviceValue)
    device.move(made, device.place[0])
    return made
