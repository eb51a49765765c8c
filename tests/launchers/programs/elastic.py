"""An elastic program. ``elastic.py error``: in the first start the last rank ends with an error. ``elastic.py leave``:
while there are three ranks, the one with the variable ``LEAVES`` kills its launcher and itself.
"""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from workload import Model

import autoprof

if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    fails = sys.argv[1] == "error" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and rank == size - 1
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Model(rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    session = autoprof.instrument(model, optimizer=optimizer)
    for step in range(40):
        if step == 30 and fails:
            raise SystemExit(3)
        if step == 30 and size == 3 and "LEAVES" in os.environ:
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(1)
        model(torch.randn(16, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        session.step()
    session.close()
    dist.destroy_process_group()
