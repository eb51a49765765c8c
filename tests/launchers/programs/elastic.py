"""An elastic program: in the first start the last rank ends with an error."""

import os

import torch
import torch.distributed as dist
from torch import nn
from workload import Model

import autoprof

if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    fails = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and rank == size - 1
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Model(rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    session = autoprof.instrument(model, optimizer=optimizer)
    for step in range(40):
        if step == 30 and fails:
            raise SystemExit(3)
        model(torch.randn(16, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        session.step()
    session.close()
    dist.destroy_process_group()
