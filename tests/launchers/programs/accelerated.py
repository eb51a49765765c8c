"""A program of accelerate."""

import sys

import torch.distributed as dist
from accelerate import Accelerator
from workload import train

if __name__ == "__main__":
    accelerator = Accelerator(cpu=True)
    train(accelerator.process_index, instrument="--unchanged" not in sys.argv, wrap=accelerator.prepare)
    dist.destroy_process_group()
