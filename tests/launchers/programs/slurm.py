"""A program that ``srun`` starts: SLURM's variables are those of the rank."""

import os
import sys

import torch.distributed as dist
from gloo_ranks import join_group
from workload import train

if __name__ == "__main__":
    rank, world_size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_STEP_NUM_TASKS"])
    join_group(os.environ["MEETING"], rank, world_size)
    train(rank, instrument="--unchanged" not in sys.argv)
    dist.destroy_process_group()
