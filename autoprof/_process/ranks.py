"""The rank of this process among those that train together."""

from __future__ import annotations

import os
from datetime import datetime

import torch


def rank() -> int:
    """Return the number of this process, from 0."""
    return _rank_and_world_size()[0]


def world_size() -> int:
    """Return the number of processes that train together."""
    return _rank_and_world_size()[1]


def _rank_and_world_size() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    try:
        return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    except ValueError:
        return 0, 1


def launch_name() -> str:
    """Return a name that all ranks of this host compute without communication, from their parent process."""
    parent = os.getppid()
    try:
        started = os.stat(f"/proc/{parent}").st_mtime
    except OSError:
        return f"launch-{parent}"
    return f"{datetime.fromtimestamp(started):%Y-%m-%d_%H-%M-%S}-{parent}"
