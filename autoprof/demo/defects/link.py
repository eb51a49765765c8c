"""A defect of the link between ranks: a process group on the fake clock, whose other rank is always there already."""
# mypy: allow-untyped-calls
# (torch leaves parts of its process groups without types.)

from __future__ import annotations

from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from ...summary import Summary
from ...testing import FakeClock
from .models import MS, four, train

LATENCY_MS: Final = 30


class Sent:
    """What torch waits for after it has sent something: here all has arrived already."""

    def wait(self) -> bool:
        """Return at once."""
        return True


def averaging(broken: bool) -> Summary:
    """Average the gradients one by one over a link that is slow to answer; the twin sends them all at once."""

    class Link(dist.ProcessGroup):
        """Two ranks, of which the other one has the same gradients; torch's own list of groups never hears of it."""

        def allreduce(self, tensors: list[Tensor], options: Any = None) -> Sent:  # type: ignore[override]
            """Sum over both, which takes as long as the link does to answer."""
            clock.advance(LATENCY_MS * MS)
            for tensor in tensors:
                tensor.mul_(self.size())
            return Sent()

    clock = FakeClock()
    link = Link(0, 2)  # type: ignore[call-arg]  # torch's stub knows the form with a store only
    model = four(clock)

    def average() -> None:
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        bucket = torch.cat([gradient.flatten() for gradient in gradients])
        for part in gradients if broken else [bucket]:
            dist.all_reduce(part, group=link)
            part.div_(link.size())
        if not broken:
            for gradient, values in zip(gradients, bucket.split([one.numel() for one in gradients]), strict=True):
                gradient.copy_(values.view_as(gradient))

    return train(model, clock, before_update=average)
