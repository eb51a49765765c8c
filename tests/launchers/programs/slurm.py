"""A program that ``srun`` starts: SLURM's variables are those of the rank."""

import os
import sys

import torch.distributed as dist
from workload import train

if __name__ == "__main__":
    rank, world_size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_STEP_NUM_TASKS"])
    port = os.environ["MASTER_PORT"]
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size)
    train(rank, instrument="--unchanged" not in sys.argv)
    dist.destroy_process_group()
