"""A program of torchrun's kind: the launcher's variables are those of ``init_process_group``."""

import sys

import torch.distributed as dist
from workload import train

if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(dist.get_rank(), instrument="--unchanged" not in sys.argv)
    dist.destroy_process_group()
