"""The rank of this process among those that train together: of the process group, or else of the launcher."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

import torch


def rank() -> int:
    """Return the number of this process, from 0."""
    return _rank_and_world_size()[0]


def world_size() -> int:
    """Return the number of processes that train together."""
    return _rank_and_world_size()[1]


class Launcher(NamedTuple):
    """A launcher, and the environment variables in which it gives a process its rank and their number."""

    name: str
    rank: str
    world_size: str
    only_with: str = ""
    """A variable without which the others mean something else."""


LAUNCHERS: Final = (
    Launcher("torchrun, accelerate, deepspeed, Ray", "RANK", "WORLD_SIZE"),
    Launcher("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    Launcher("MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    Launcher("MPICH, Intel MPI", "PMI_RANK", "PMI_SIZE"),
    # ``SLURM_NTASKS`` is set in the script of a job as well, which one process executes; this one only by ``srun``.
    Launcher("SLURM", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    # Lightning gives the processes of a machine their number there, which on the first machine is the rank.
    Launcher("Lightning", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK"),
)
"""The launchers that are known, in the order in which they are asked: one may start another."""


def _rank_and_world_size() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return ranks_of(os.environ) or _incomplete(os.environ)


def ranks_of(environment: Mapping[str, str]) -> tuple[int, int] | None:
    """Return rank and number of ranks by a launcher's variables; None without them, or where they make no sense."""
    for launcher in LAUNCHERS:
        rank, world_size = (_number(environment.get(name)) for name in (launcher.rank, launcher.world_size))
        if launcher.only_with and environment.get(launcher.only_with) != "0":
            continue
        if rank is not None and world_size is not None and rank < world_size:
            return rank, world_size
    return None


def _incomplete(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return rank and number of ranks where only one of the two variables is set, as by hand-written scripts."""
    rank, world_size = _number(environment.get("RANK")), _number(environment.get("WORLD_SIZE"))
    if rank is not None and world_size is not None:  # they contradict each other
        return 0, 1
    return rank or 0, world_size or 1


def _number(text: str | None) -> int | None:
    """Return a whole number that is not negative; None for another text."""
    return int(text) if text is not None and text.isascii() and text.strip().isdigit() else None


def launch_name(launcher: int | None = None) -> str:
    """Return a name that all ranks of this host compute without communication, from the process that launched them.

    That is their parent process, unless the id of another is given. Ranks that ``srun`` starts are named by their job,
    on all hosts alike.
    """
    parent = os.getppid() if launcher is None else launcher
    job, step = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_STEP_ID")
    if job and step and launcher is None and "SLURM_STEP_NUM_TASKS" in os.environ and "RANK" not in os.environ:
        return f"slurm-{job}-{step}{_restart('SLURM_RESTART_COUNT')}"
    start = _node() + _restart("TORCHELASTIC_RESTART_COUNT")
    try:
        started = os.stat(f"/proc/{parent}").st_mtime
    except OSError:
        return f"launch-{parent}{start}"
    return f"{datetime.fromtimestamp(started):%Y-%m-%d_%H-%M-%S}-{parent}{start}"


def _node() -> str:
    """Return the place of this host among several that torchrun uses.

    Where a host joins or leaves, torchrun starts all ranks again and does not count a restart. The ranks of a host may
    then have other numbers, and would share the folder of the start before.
    """
    node, nodes = _number(os.environ.get("GROUP_RANK")), _number(os.environ.get("GROUP_WORLD_SIZE"))
    return f"-node{node}of{nodes}" if node is not None and nodes is not None and nodes > 1 else ""


def _restart(name: str) -> str:
    """Return the end of the name of a run that its launcher has started again."""
    restarts = _number(os.environ.get(name))
    return f"-restart{restarts}" if restarts else ""
