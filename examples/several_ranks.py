"""Profile data-parallel training: each rank writes its own records into one folder, and rank 0 the report.

torchrun --nproc-per-node 2 examples/several_ranks.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import autoprof


def main() -> None:
    """Train 20 steps on every rank."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 10))
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.01)
    with autoprof.instrument(replica, {"sinks": {"jsonl": {}, "log": {}}}, optimizer=optimizer) as session:
        for _ in range(20):
            replica(torch.randn(64, 128)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            session.step()
    if dist.get_rank() == 0:
        print(f"records of {dist.get_world_size()} ranks: {session.folder}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
