"""time.sleep of 5 ms in the forward of a module, while the device has nothing to do."""

import time

import kit
import torch
from torch import nn

EXPECTED = {
    "steps": 120,
    "step_tolerance": 0.1,  # recorded steps launch more slowly than others
    "host_counts": {"slow": 120},
    "claims": [
        {"kind": "row", "module": "slow", "phase": "forward", "is": "slow", "host": True},
        {"kind": "row", "module": "first", "phase": "forward", "is": 0.0},
        {"kind": "host_bound", "module": "slow", "phase": "forward", "low": 0.9, "gpu": True},
        {"kind": "found_any", "rules": ["launch-bound", "hot-module"], "gpu": True},
        {"kind": "names", "module": "slow"},
        {"kind": "line", "rule": None, "mark": "HERE", "soft": True},
    ],
}


class Slow(nn.Linear):
    def forward(self, x):
        with kit.host_span("slow"):
            time.sleep(0.005)  # HERE
        return torch.relu(super().forward(x))


model = kit.Net(first=nn.Linear(256, 256), slow=Slow(256, 256), last=kit.last())
kit.train(model, 120)
kit.save(model)
