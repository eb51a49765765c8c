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


def launch_name(launcher: int | None = None) -> str:
    """Return a name that all ranks of this host compute without communication, from the process that launched them.

    That is their parent process, unless the id of another is given.
    """
    parent = os.getppid() if launcher is None else launcher
    try:
        started = os.stat(f"/proc/{parent}").st_mtime
    except OSError:
        return f"launch-{parent}"
    return f"{datetime.fromtimestamp(started):%Y-%m-%d_%H-%M-%S}-{parent}"
