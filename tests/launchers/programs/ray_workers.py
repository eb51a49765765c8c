"""A program of Ray: two workers of ``ray.train`` join a process group of gloo."""

import os
import sys

import ray
import torch.distributed as dist
from ray.train import ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

FOLDER = os.path.dirname(os.path.abspath(__file__))
WORKING = os.getcwd()


def worker(config: dict) -> None:
    """Train as one rank."""
    sys.path.insert(0, FOLDER)
    os.chdir(WORKING)
    from workload import train

    train(dist.get_rank(), instrument=config["instrument"])


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=True)
    scaling = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1})
    given = {"instrument": "--unchanged" not in sys.argv}
    TorchTrainer(worker, train_loop_config=given, scaling_config=scaling, torch_config=TorchConfig("gloo")).fit()
