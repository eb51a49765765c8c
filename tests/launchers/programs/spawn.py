"""A program that starts its ranks by ``torch.multiprocessing.spawn``: no variable says which one a process is."""

import socket
import sys

import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from workload import train

RANKS = 2


def main(rank: int, port: int, instrument: bool) -> None:
    """Train as one rank."""
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    train(rank, instrument=instrument)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        free = listener.getsockname()[1]
    multiprocessing.spawn(main, (free, "--unchanged" not in sys.argv), nprocs=RANKS)
