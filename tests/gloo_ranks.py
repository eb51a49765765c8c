"""Ranks of tests: processes that train over gloo on this machine, and a backward that takes longer on one of them."""

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as multiprocessing
from torch import Tensor


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def train_ranks(main: Callable[..., None], folder: Path, *arguments: Any) -> list[dict[Any, Any]]:
    """Run ``main(rank, world size, port, folder, …)`` in two processes; return what each saved as ``<rank>.pt``."""
    multiprocessing.spawn(main, args=(2, free_port(), str(folder), *arguments), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


class SlowBackward(torch.autograd.Function):
    """The identity; its backward sleeps."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        time.sleep(ctx.seconds)
        return grads[0], None
