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


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 256)

    def forward(self, x):
        with kit.host_span("slow"):
            time.sleep(0.005)  # HERE
        return torch.relu(self.linear(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(256, 256)
        self.slow = Slow()
        self.last = nn.Linear(256, 10)

    def forward(self, x):
        return self.last(self.slow(self.first(x)))


kit.calibrate()
torch.manual_seed(0)
model = Net().to(kit.DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(64, 256, device=kit.DEVICE)
labels = torch.randint(0, 10, (64,), device=kit.DEVICE)
for _ in range(120):
    kit.step()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
kit.save([model])
