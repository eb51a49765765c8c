"""A program that starts its ranks by ``torch.multiprocessing.spawn``: no variable says which one a process is."""

import sys
import tempfile

import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from gloo_ranks import join_group
from workload import train

RANKS = 2


def main(rank: int, meeting: str, instrument: bool) -> None:
    """Train as one rank."""
    join_group(meeting, rank, RANKS)
    train(rank, instrument=instrument)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(main, (f"{folder}/meeting", "--unchanged" not in sys.argv), nprocs=RANKS)
